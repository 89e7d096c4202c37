"""A worker of `demo wordcount`. It knows the REST API and nothing else, as a worker of yours would.

    TASKSTORE_TOKEN=... python3 wordcount_worker.py http://127.0.0.1:8048 wordcount/4f2a91

    <run>/map           a task per line of text
    <run>/words/<word>  a task per count of that word in some lines
    <run>/reduce        a task per word: who holds it may add up the word's counts
    <run>/output        a task per word: how often it occurs in the text

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
from collections.abc import Iterable, Sequence
from typing import Any, Self
from urllib.parse import quote

import httpx

LEASE_MS = 5_000
# So much that no commit becomes larger than the 10 000 changes that the store takes.
LONGEST_LINE = 190
LINES_AT_ONCE = 100
WORDS_AT_ONCE = 20
COUNTS_AT_ONCE = 400
NOTHING_TO_DO_S = 0.2
SERVER_AWAY_S = 0.5
# Letters of any script, apostrophes between them; cut off where a name of a group would become too long.
WORD = re.compile(r"[^\W\d_](?:['\u2019]?[^\W\d_]){0,59}")

Task = dict[str, Any]


class Refused(Exception):
    """The server does not take a request: the token is not good for it, or the request is wrong."""


class Store:
    """The requests that it takes. They raise httpx.HTTPError when the server is away or in trouble."""

    def __init__(self, url: str, token: str) -> None:
        self.client_id = secrets.randbits(48)
        # Without the proxies of the environment: they lead out, and the server is near.
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def claim(self, group: str, limit: int) -> list[Task]:
        """Up to `limit` tasks that nobody else has; empty when there is none to have now."""
        asked = {"clientid": self.client_id, "group": group, "duration": LEASE_MS, "limit": limit}
        tasks: list[Task] = self._ask("POST", "/claim", json=asked)["tasks"]
        return tasks

    def commit(self, *, adds: Sequence[Task] = (), updates: Sequence[Task] = (), deletes: Sequence[int] = ()) -> bool:
        """All of it or nothing. False: refused, because something of it is gone or another's."""
        asked = {"clientid": self.client_id, "adds": adds, "updates": updates, "deletes": deletes}
        return self._ask("POST", "/update", json=asked)["error"] is None

    def tasks(self, group: str, limit: int = 0) -> list[Task]:
        """The tasks of a group, also those that somebody holds."""
        tasks: list[Task] = self._ask("GET", f"/group/{quote(group)}", params={"owned": "yes", "limit": limit})
        return tasks

    def groups(self) -> list[str]:
        names: list[str] = self._ask("GET", "/groups")
        return names

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        answer = self._http.request(method, path, **request)
        if answer.is_client_error:
            raise Refused(f"{method} {path} was answered {answer.status_code}: {answer.text}")
        return answer.raise_for_status().json()


def words_of(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def map_lines(store: Store, run: str) -> int:
    """Replace some lines by the counts of their words. Returns how many lines."""
    lines = store.claim(f"{run}/map", LINES_AT_ONCE)
    counts = Counter(word for line in lines for word in words_of(line["data"]))
    adds = [{"group": f"{run}/words/{word}", "data": str(count)} for word, count in counts.items()]
    return len(lines) if lines and store.commit(adds=adds, deletes=ids(lines)) else 0


def reduce_words(store: Store, run: str) -> int:
    """Replace the counts of some words by their sums. Returns how many words were finished."""
    adds, updates, deletes = [], [], []
    finished = 0
    for right in store.claim(f"{run}/reduce", WORDS_AT_ONCE):
        word = right["data"]
        group = f"{run}/words/{word}"
        # No need to claim these: only who holds the right to the word touches them.
        counts = store.tasks(group, COUNTS_AT_ONCE)
        total = sum(int(count["data"]) for count in counts)
        deletes += ids(counts)
        if len(counts) < COUNTS_AT_ONCE:
            adds.append({"group": f"{run}/output", "data": json.dumps({"word": word, "count": total})})
            deletes.append(right["id"])
            finished += 1
        else:  # There may be more of them: the sum so far is one count, and whoever comes next goes on.
            adds.append({"group": group, "data": str(total)})
            updates.append({"id": right["id"], "data": word})
    return finished if deletes and store.commit(adds=adds, updates=updates, deletes=deletes) else 0


def ids(tasks: Iterable[Task]) -> list[int]:
    return [task["id"] for task in tasks]


def work(store: Store, run: str) -> None:
    """Do what there is to do, and tell what was done, until the one who started us is gone."""
    starter = os.getppid()
    while os.getppid() == starter:
        try:
            if lines := map_lines(store, run):
                tell("map", lines)
            elif words := reduce_words(store, run):
                tell("reduce", words)
            else:
                time.sleep(NOTHING_TO_DO_S)
        except httpx.HTTPError:
            # The server is away. What was in hand is done, or comes back when its lease ends.
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
