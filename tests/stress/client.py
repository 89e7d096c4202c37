"""One of many clients that use a server at random, and write down all that they asked and were answered.

    python client.py ADDRESS TOKEN NUMBER SECONDS FILE

A program of its own, with the standard library only: sixteen of them have to start on a small machine.
"""

from __future__ import annotations

import json
import random
import sys
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

GROUPS = ["mail", "reports", "mail/in"]
PATIENCE_S = 30
MOST_KNOWN = 40  # Ids to interfere with. Few, so that clients meet.


class Client:
    def __init__(self, address: str, token: str, number: int, file: Path) -> None:
        self.address, self.token, self.number = address, token, number
        self.chance = random.Random(number)
        self.notes = file.open("w", buffering=1)
        self.connection: HTTPConnection | None = None
        self.held: list[dict[str, Any]] = []
        self.known: list[int] = []
        self.added = 0

    def run(self, seconds: float) -> None:
        moves = {self.add: 3, self.claim: 6, self.work: 5, self.interfere: 3, self.look: 1}
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            [move] = self.chance.choices(list(moves), list(moves.values()))
            move()

    # ---- What a client does

    def add(self) -> None:
        self.post("/update", adds=[self.new_task() for _ in range(self.chance.randint(1, 3))])

    def claim(self) -> None:
        asked: dict[str, Any] = {
            "group": self.chance.choice(GROUPS),
            "duration": self.chance.choice([0, 1, 50, 500, 5_000]),
            "limit": self.chance.choice([1, 1, 1, 5]),
            "order": self.chance.choice(["random", "oldest"]),
        }
        if self.chance.random() < 0.1:
            asked["depends"] = self.some_known(1)
        answer = self.post("/claim", **asked)
        self.held += answer["tasks"] if answer else []

    def work(self) -> None:
        """Finish, renew, give back or forget what it holds; often too late."""
        if not self.held:
            return
        task = self.held.pop(self.chance.randrange(len(self.held)))
        asked = self.chance.choice(
            [
                {"deletes": [task["id"]]},
                {"deletes": [task["id"]], "adds": [self.new_task()], "depends": self.some_known(1)},
                {"deletes": [task["id"]], "adds": [{**self.new_task(), "id": task["id"]}]},
                {"updates": [{"id": task["id"], "keep": True, "timespec": -self.chance.randint(1, 2_000)}]},
                {"updates": [{"id": task["id"], "keep": True, "release": True}]},
                {},
            ]
        )
        if asked:
            answer = self.post("/update", **asked)
            self.held += [made for made in answer["tasks"] if made["claims"]] if answer else []

    def interfere(self) -> None:
        """Change what others may be changing, in any order."""
        ids = self.some_known(self.chance.randint(1, 4))
        split = self.chance.randint(0, len(ids))
        self.post(
            "/update",
            updates=[{"id": task_id, "data": self.unique()} for task_id in ids[:split]],
            deletes=ids[split:],
            adds=[self.new_task()] if self.chance.random() < 0.5 else [],
            depends=self.some_known(self.chance.randint(0, 2)),
        )

    def look(self) -> None:
        if self.chance.random() < 0.5:
            listed = self.ask("GET", f"/group/{self.chance.choice(GROUPS)}?owned=yes")
            self.learn(task["id"] for task in listed or [])
        else:
            self.ask("POST", "/tasks", {"ids": self.some_known(5)})

    # ---- How

    def new_task(self) -> dict[str, Any]:
        return {
            "group": self.chance.choice(GROUPS),
            "data": self.unique(),
            "timespec": self.chance.choice([0, 0, 0, -100, -1_000]),
            "priority": self.chance.choice([0, 0, 0, 5]),
        }

    def unique(self) -> str:
        """Data by which a task can be told, whoever asked for it."""
        self.added += 1
        return f"{self.number}/{self.added}"

    def some_known(self, count: int) -> list[int]:
        return self.chance.sample(self.known, min(count, len(self.known)))

    def learn(self, ids: Any) -> None:
        self.known = (self.known + list(ids))[-MOST_KNOWN:]

    def post(self, path: str, **body: Any) -> Any:
        answer = self.ask("POST", path, {"clientid": self.number, **body})
        self.learn(task["id"] for task in (answer["tasks"] if answer else []))
        return answer

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and write it down with its answer; None when none came: it may have been done or not."""
        if not self.is_connected():
            return None
        note = {"client": self.number, "path": path, "body": body, **now("sent")}
        try:
            note["status"], note["answer"] = self.send(method, path, body)
        except (OSError, HTTPException):
            note["status"] = note["answer"] = None
            self.connection = None
        print(json.dumps({**note, **now("received")}), file=self.notes)
        return note["answer"] if note["status"] == 200 else None

    def is_connected(self) -> bool:
        """Whether the server can be reached; if not, nothing has been asked of it."""
        if self.connection is None:
            connection = HTTPConnection(self.address, timeout=PATIENCE_S)
            try:
                connection.connect()
            except OSError:
                sleep(0.05)  # It may be starting again.
                return False
            self.connection = connection
        return True

    def send(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        assert self.connection is not None
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())


def now(word: str) -> dict[str, float]:
    """The time by the clock that never goes back, which all processes share, and by the one on the wall."""
    return {f"{word}_s": monotonic(), f"{word}_ms": int(time() * 1000)}


if __name__ == "__main__":
    _, address, token, number, seconds, file = sys.argv
    Client(address, token, int(number), Path(file)).run(float(seconds))
