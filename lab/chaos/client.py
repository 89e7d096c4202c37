"""One of many clients that use servers at random and record every request and response.

    python client.py '{"addresses": ["127.0.0.1:8048"], "token": ..., "number": 1, "seconds": 10, "file": ...}'

A separate program with the standard library only, because sixteen of them start on a small machine.
"""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep, time
from typing import IO, Any

GROUPS = ["mail", "reports", "mail/in", "few", "each/a"]
# The limits of groups: their names, and what is set for them.
LIMITS: dict[str, dict[str, Any]] = {
    "few": {"running": 3, "rate": {"claims": 30, "per": 1_000}},
    "each/*": {"running": 1, "by": "tenant"},
}
KEYS = [None, None, None, "Ann", "Bob", "Cid"]  # Unique keys. Few, so that most of them are taken.
THEN = "then"  # The group of what batches add when they close. Clients only look at it.
# The groups of the tasks between the levels of nested plans, and of the tasks of deleted batches. Requests about them
# are not recorded: the checker looks only at the tables that they leave.
BETWEEN, DOOMED = "between", "doomed"
# The groups of the tasks of trees of batches, of those that failed, and of what trees add at the end and on failure.
TREE, DEAD, TREE_THEN, ALARM = "tree", "tree/dead", "tree/then", "tree/alarm"
SILENT = (THEN, BETWEEN, DOOMED, TREE, DEAD, TREE_THEN, ALARM)
HELD = "held"  # The group from which some clients claim a task and do nothing.
MOST_KNOWN = 40  # Ids to interfere with. Few, so that clients collide.
AWAY_S = 0.05  # The pause before the next attempt on an unavailable server.
WAIT_MS = 60_000
RESEND_S = 60  # How long to repeat an unanswered request.

Note = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Orders:
    addresses: list[str]  # Of servers; if one can't be reached, the next one is used.
    token: str
    number: int  # The client's id.
    file: str  # For the records.
    seed: str = ""
    seconds: float = 0
    resends: bool = False  # Repeat unanswered requests with their keys, and sometimes answered ones.
    plans: bool = True  # Make and delete batches without recording it, too.
    holds_ms: int = 0  # Claim one task for so long, and do nothing more.
    patience_s: float = 90  # For a response.


class Client:
    def __init__(self, orders: Orders, notes: IO[str]) -> None:
        self.orders, self.number, self.notes = orders, orders.number, notes
        # The same seed gives the same moves for the same responses.
        self.chance = random.Random(f"{orders.seed}/{orders.number}")  # noqa: S311 - it need not be secret.
        self.connection: HTTPConnection | None = None
        self.server = orders.number  # The index of the current address.
        self.held: list[dict[str, Any]] = []
        self.known: list[int] = []
        self.added = 0
        self.must_end = False

    def run(self) -> None:
        moves: dict[Callable[[], None], float] = {
            self.add: 3,
            self.claim: 6,
            self.work: 5,
            self.interfere: 3,
            self.look: 1,
            self.cancel: 1,
            self.batch: 1,
        }
        if self.orders.plans:
            moves |= {self.plan: 1, self.finish: 2, self.delete_batch: 1}
            moves |= {self.tree: 0.3, self.end_in_trees: 2, self.change_failed: 0.3}
        deadline = monotonic() + self.orders.seconds
        while monotonic() < deadline and not self.must_end:
            [move] = self.chance.choices(list(moves), list(moves.values()))
            move()

    def end(self, *_: object) -> None:
        """End after the current move."""
        self.must_end = True

    def hold(self) -> None:
        """Claim a task and wait to be killed."""
        self.post("/claim", group=HELD, duration=self.orders.holds_ms, limit=1, order="oldest", wait=WAIT_MS)
        while True:
            sleep(1)

    # ---- What a client does

    def add(self) -> None:
        self.post("/update", adds=[self.keyed_task() for _ in range(self.chance.randint(1, 3))])

    def batch(self) -> None:
        """Add tasks that are a batch, which adds another one at its end."""
        adds = [self.keyed_task() for _ in range(self.chance.randint(0, 4))]
        self.post("/batches", adds=adds, then=[{"group": THEN, "data": self.unique()}])

    # ---- What a client does without recording it

    def plan(self) -> None:
        """Make a batch that adds one batch after the other."""
        plan: Any = [{"group": THEN, "data": "last"}]
        for _ in range(self.chance.randint(1, 3)):
            plan = {"adds": [{"group": BETWEEN}], "then": plan}
        adds = [{"group": BETWEEN}] * self.chance.randint(0, 2)
        self.silently("POST", "/batches", {"clientid": self.number, "adds": adds, "then": plan})

    def finish(self) -> None:
        """Finish tasks of nested plans."""
        asked = {"clientid": self.number, "group": BETWEEN, "limit": 5, "duration": 500}
        if tasks := (self.silently("POST", "/claim", asked) or {}).get("tasks"):
            ended = {"clientid": self.number, "deletes": [task["id"] for task in tasks]}
            self.silently("POST", "/update", ended)

    def delete_batch(self) -> None:
        """Make a batch whose tasks no client ends, and perhaps delete it."""
        asked = {"clientid": self.number, "adds": [{"group": DOOMED}] * 3, "then": [{"group": THEN, "data": "never"}]}
        made = self.silently("POST", "/batches", asked)
        if made and self.chance.random() < 0.8:
            self.silently("DELETE", f"/batches/{made['batch']['id']}", None)

    def tree(self) -> None:
        """Make a batch with steps, some of which are batches with steps."""
        task = {"group": TREE}
        inner = {"adds": [task] * self.chance.randint(0, 2), "steps": [[task], [task, task]]}
        steps: Any = [[task] * self.chance.randint(0, 2), {"adds": [task], "batches": [inner, inner]}, [task]]
        ends = {"then": [{"group": TREE_THEN}], "on_failure": [{"group": ALARM}]}
        adds, within = [task] * self.chance.randint(0, 2), [inner] * self.chance.randint(0, 2)
        asked = {"clientid": self.number, "name": TREE, "adds": adds, "batches": within, "steps": steps, **ends}
        self.silently("POST", "/batches", asked)

    def end_in_trees(self) -> None:
        """Finish tasks of trees; some fail, and a few are cancelled."""
        asked = {"clientid": self.number, "group": TREE, "limit": 3, "duration": 500}
        for task in (self.silently("POST", "/claim", asked) or {}).get("tasks", ()):
            chance = self.chance.random()
            if chance < 0.02:
                self.silently("POST", "/cancel", {"ids": [task["id"]]})
            elif chance < 0.15:
                failed = [{"id": task["id"], "group": DEAD, "error": "it failed", "keep": True}]
                self.silently("POST", "/update", {"clientid": self.number, "updates": failed})
            else:
                self.silently("POST", "/update", {"clientid": self.number, "deletes": [task["id"]]})

    def change_failed(self) -> None:
        """Requeue what has failed in trees, or purge it. Retention removes what no open batch waits for."""
        verb = "requeue" if self.chance.random() < 0.9 else "purge"
        which = {"verb": verb, "group": DEAD}
        if (seen := self.silently("POST", "/bulk/preview", which)) and seen["count"]:
            agreed = {"bound": seen["bound"], "as_of": seen["as_of"], "expected": seen["count"]}
            self.silently("POST", "/bulk", {**which, **agreed, "typed": seen["to_type"]})

    def silently(self, method: str, path: str, body: Any) -> Any:
        """Send a request. Returns the answer if it was done, else None."""
        if (connection := self.reach()) is None:
            return None
        try:
            note = self.send(connection, method, path, body)
        except (OSError, HTTPException, ValueError):
            self.hang_up()
            return None
        return note["answer"] if note["status"] < 300 else None

    def claim(self) -> None:
        asked: dict[str, Any] = {
            "group": self.chance.choice(GROUPS),
            "duration": self.chance.choice([0, 1, 50, 500, 5_000]),
            "limit": self.chance.choice([1, 1, 1, 16]),
            "order": self.chance.choice(["random", "oldest"]),
        }
        if self.chance.random() < 0.1:
            asked["depends"] = self.some_known(1)
        answer = self.post("/claim", **asked)
        self.held += answer["tasks"] if answer else []

    def work(self) -> None:
        """Finish, renew, give back or forget a held task, often too late."""
        if not self.held:
            return
        task = self.held.pop(self.chance.randrange(len(self.held)))
        fellows = [{**self.new_task(), "batch": task["batch"]}] if "batch" in task else []
        asked = self.chance.choice(
            [
                {"deletes": [task["id"]]},
                {"deletes": [task["id"]], "adds": [self.keyed_task()], "depends": self.some_known(1)},
                {"deletes": [task["id"]], "adds": [{**self.new_task(), "id": task["id"]}]},
                {"updates": [{"id": task["id"], "keep": True, "timespec": -self.chance.randint(1, 2_000)}]},
                {"updates": [{"id": task["id"], "keep": True, "release": True}]},
                {},
                {"deletes": [task["id"]], "adds": fellows},
            ]
        )
        if asked:
            answer = self.post("/update", **asked)
            made = [task for task in answer["tasks"] if not task.get("duplicate")] if answer else []
            self.held += [task for task in made if task["claims"]]

    def interfere(self) -> None:
        """Change tasks that other clients may be changing, in any order."""
        ids = self.some_known(self.chance.randint(1, 4))
        split = self.chance.randint(0, len(ids))
        self.post(
            "/update",
            updates=[{"id": task_id, "data": self.unique()} for task_id in ids[:split]],
            deletes=ids[split:],
            adds=[self.keyed_task()] if self.chance.random() < 0.5 else [],
            depends=self.some_known(self.chance.randint(0, 2)),
        )

    def cancel(self) -> None:
        """Cancel a task, also one that another client holds."""
        if ids := self.some_known(1):
            self.ask("POST", "/cancel", {"ids": ids})

    def look(self) -> None:
        kind = self.chance.random()
        if kind < 0.5:
            listed = self.ask("GET", f"/group/{self.chance.choice([*GROUPS, THEN])}?owned=yes")
            self.learn(task["id"] for task in listed or [] if task["group"] != THEN)
        elif kind < 0.9:
            self.ask("POST", "/tasks", {"ids": self.some_known(5)})
        else:
            self.ask("GET", "/stats")

    # ---- How

    def new_task(self) -> dict[str, Any]:
        return {
            "group": self.chance.choice(GROUPS),
            "data": self.unique(),
            "timespec": self.chance.choice([0, 0, 0, -100, -1_000]),
            "priority": self.chance.choice([0, 0, 0, 5]),
            "labels": {"tenant": self.chance.choice("ab")},
        }

    def keyed_task(self) -> dict[str, Any]:
        """Return a new task, often with a unique key, which a successor could not have."""
        key = self.chance.choice(KEYS)
        return {**self.new_task(), "unique": key} if key else self.new_task()

    def unique(self) -> str:
        """Return data that identifies a task."""
        self.added += 1
        return f"{self.number}/{self.added}"

    def some_known(self, count: int) -> list[int]:
        return self.chance.sample(self.known, min(count, len(self.known)))

    def learn(self, ids: Any) -> None:
        self.known = (self.known + list(ids))[-MOST_KNOWN:]

    def post(self, path: str, **body: Any) -> Any:
        asked = {"clientid": self.number, **body}
        if self.orders.resends:
            answer = self.insist(path, {**asked, "key": self.unique()})
        else:
            answer = self.ask("POST", path, asked)
        self.learn(task["id"] for task in (answer["tasks"] if answer else []))
        return answer

    def insist(self, path: str, body: Any) -> Any:
        """Repeat a request until it is answered, and sometimes once more."""
        deadline = monotonic() + RESEND_S
        answer = self.ask("POST", path, body)
        while answer is None and monotonic() < deadline:
            answer = self.ask("POST", path, body)
        # The server does not keep the response of a claim that found nothing.
        is_kept = answer and (answer["tasks"] or answer["error"] or path != "/claim")
        if is_kept and self.chance.random() < 0.05:
            self.ask("POST", path, body)
        return answer

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send and record a request. Returns None without a response, when it may have been done or not."""
        connection = self.reach()
        if connection is None:
            return None
        note = {"client": self.number, "path": path, "body": body, **self.now("sent")}
        try:
            note |= self.send(connection, method, path, body)
        except (OSError, HTTPException, ValueError):  # ValueError: a truncated response.
            note["status"] = note["answer"] = None
            self.hang_up()
        print(json.dumps({**note, **self.now("received")}), file=self.notes)
        if note["status"] == 503:
            sleep(AWAY_S)
        return note["answer"] if note["status"] == 200 else None

    def reach(self) -> HTTPConnection | None:
        """Return a connection; None if no server can be reached now, so that nothing was sent."""
        if self.connection is None:
            address = self.orders.addresses[self.server % len(self.orders.addresses)]
            connection = HTTPConnection(address, timeout=self.orders.patience_s)
            try:
                connection.connect()
            except OSError:
                self.server += 1
                sleep(AWAY_S)  # It may be restarting.
                return None
            self.connection = connection
        return self.connection

    def hang_up(self) -> None:
        if self.connection:
            self.connection.close()
        self.connection = None
        self.server += 1

    def send(self, connection: HTTPConnection, method: str, path: str, body: Any) -> Note:
        headers = {"Authorization": f"Bearer {self.orders.token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return {
            "status": answer.status,
            "answer": json.loads(answer.read()),
            "retry_after": answer.getheader("Retry-After"),
        }

    def now(self, word: str) -> dict[str, float]:
        """Return the monotonic time, which all processes share, and the wall clock time."""
        return {f"{word}_s": monotonic(), f"{word}_ms": int(time() * 1000)}


class Worker(Client):
    """A client controlled by a scene, which records its requests like all clients."""

    def claimed(self, limit: int, duration_ms: int, wait_ms: int = 0) -> list[dict[str, Any]]:
        asked = {"group": HELD, "duration": duration_ms, "limit": limit, "order": "oldest", "wait": wait_ms}
        answer = self.post("/claim", **asked)
        return answer["tasks"] if answer else []

    def committed(self, **asked: Any) -> dict[str, Any]:
        return self.post("/update", **asked) or {}


def main() -> None:
    orders = Orders(**json.loads(sys.argv[1]))
    with Path(orders.file).open("w", buffering=1) as notes:
        client = Client(orders, notes)
        signal.signal(signal.SIGTERM, client.end)
        client.hold() if orders.holds_ms else client.run()


if __name__ == "__main__":
    main()
