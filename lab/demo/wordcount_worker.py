"""A worker of `demo wordcount`. It knows the REST API and nothing else, and needs Python alone.

    TASKSTORE_TOKEN=... python3 wordcount_worker.py http://127.0.0.1:8048 wordcount/4f2a91

    <run>/map             a task per line of text
    <run>/words/<letter>  a task per batch of lines: how often words with this first letter occur in them
    <run>/reduce          a task per letter: who holds it may add up the letter's counts
    <run>/output          a task per letter: how often each of its words occurs in the text

Any number of workers may run, and each may die at any moment. What one takes is leased to it for
some seconds; then others get it. What it has done counts only through one commit that also deletes
what it took: the whole commit happens, or nothing of it, and never twice.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Self
from urllib.parse import quote, urlsplit

LEASE_MS = 3_000
# So much that no commit becomes larger than the 10 000 changes that the store takes.
LONGEST_LINE = 190
LINES_AT_ONCE = 100
COUNTS_AT_ONCE = 400
NOTHING_TO_DO_S = 0.2
SERVER_AWAY_S = 0.5
# Letters of any script, apostrophes between them; cut off where a name of a group would become too long.
WORD = re.compile(r"[^\W\d_](?:['\u2019]?[^\W\d_]){0,59}")

Task = dict[str, Any]


class Refused(Exception):
    """The server does not take a request: the token is not good for it, or the request is wrong."""


class ServerAway(Exception):
    """The server does not answer, or is in trouble."""


class Store:
    """The requests that it takes. They raise Refused or ServerAway."""

    def __init__(self, url: str, token: str) -> None:
        self.client_id = secrets.randbits(48)
        self._headers = {"Authorization": f"Bearer {token}"}
        server = urlsplit(url)
        self._path = server.path.rstrip("/")
        # Of the standard library: it is read in a moment, and a demo that kills workers starts very many.
        kind = HTTPSConnection if server.scheme == "https" else HTTPConnection
        self._connection = kind(server.netloc, timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def claim(self, group: str, limit: int) -> list[Task]:
        """Up to `limit` tasks that nobody else has; empty when there is none to have now."""
        asked = {"clientid": self.client_id, "group": group, "duration": LEASE_MS, "limit": limit}
        tasks: list[Task] = self._ask("POST", "/claim", asked)["tasks"]
        return tasks

    def commit(self, *, adds: Sequence[Task] = (), updates: Sequence[Task] = (), deletes: Sequence[int] = ()) -> bool:
        """All of it or nothing. False: refused, because something of it is gone or another's."""
        asked = {"clientid": self.client_id, "adds": adds, "updates": updates, "deletes": deletes}
        return self._ask("POST", "/update", asked)["error"] is None

    def tasks(self, group: str, limit: int = 0) -> list[Task]:
        """The tasks of a group, also those that somebody holds."""
        tasks: list[Task] = self._ask("GET", f"/group/{quote(group)}?owned=yes&limit={limit}")
        return tasks

    def groups(self) -> list[str]:
        names: list[str] = self._ask("GET", "/groups")
        return names

    def _ask(self, method: str, path: str, asked: Mapping[str, Any] | None = None) -> Any:
        body = None if asked is None else json.dumps(asked)
        try:
            self._connection.request(method, self._path + path, body, self._headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except BaseException as problem:
            # Also after Ctrl-C: the answer that was not read would be taken for that of the next request.
            self._connection.close()
            if isinstance(problem, OSError | HTTPException):
                raise ServerAway(str(problem) or type(problem).__name__) from None
            raise
        if answer.status >= 500:
            raise ServerAway(f"{method} {path} was answered {answer.status}")
        if answer.status >= 400:
            raise Refused(f"{method} {path} was answered {answer.status}: {content.decode(errors='replace')}")
        return json.loads(content)


def words_of(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def map_lines(store: Store, run: str) -> int:
    """Replace some lines with the counts of their words, a task per first letter. Returns how many lines."""
    lines = store.claim(f"{run}/map", LINES_AT_ONCE)
    counts: dict[str, Counter[str]] = {}
    for line in lines:
        for word in words_of(line["data"]):
            counts.setdefault(word[0], Counter())[word] += 1
    adds = [{"group": f"{run}/words/{letter}", "data": json.dumps(found)} for letter, found in counts.items()]
    return len(lines) if lines and store.commit(adds=adds, deletes=ids(lines)) else 0


def reduce_letter(store: Store, run: str) -> int:
    """Replace all counts of one letter with their sums. Returns how many letters were finished."""
    rights = store.claim(f"{run}/reduce", 1)
    if not rights:
        return 0
    [right] = rights
    group = f"{run}/words/{right['data']}"
    # No need to claim these: only who holds the right to the letter touches them.
    counts = store.tasks(group, COUNTS_AT_ONCE)
    sums: Counter[str] = Counter()
    for count in counts:
        sums.update(json.loads(count["data"]))
    if len(counts) < COUNTS_AT_ONCE:
        adds, deletes = [{"group": f"{run}/output", "data": json.dumps(sums)}], [*ids(counts), right["id"]]
        return int(store.commit(adds=adds, deletes=deletes))
    # There may be more of them: the sums so far are one count, and whoever comes next goes on.
    adds, updates = [{"group": group, "data": json.dumps(sums)}], [{"id": right["id"], "data": right["data"]}]
    store.commit(adds=adds, updates=updates, deletes=ids(counts))
    return 0


def ids(tasks: Iterable[Task]) -> list[int]:
    return [task["id"] for task in tasks]


def work(store: Store, run: str) -> None:
    """Do what there is to do, and tell what was done, until the one who started us is gone."""
    starter = os.getppid()
    while os.getppid() == starter:
        try:
            if lines := map_lines(store, run):
                tell("map", lines)
            elif letters := reduce_letter(store, run):
                tell("reduce", letters)
            else:
                time.sleep(NOTHING_TO_DO_S)
        except ServerAway:
            # What was in hand is done, or comes back when its lease ends.
            time.sleep(SERVER_AWAY_S)


def tell(what: str, number: int) -> None:
    # In one piece, which a kill can't cut in two.
    print(f"{what} {number}\n", end="", flush=True)


if __name__ == "__main__":
    with Store(sys.argv[1], os.environ["TASKSTORE_TOKEN"]) as store:
        try:
            work(store, sys.argv[2])
        except Refused as refusal:
            sys.exit(str(refusal))
