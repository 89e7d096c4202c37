"""What goes over the socket: state and sequence numbers, never increments, because a message may be lost.

{"seq": 7, "at": <ms>, "age": <ms>, "full":  {"mail": [ready, claimed, expired, scheduled, failed], ...}}
{"seq": 8, "at": <ms>, "age": <ms>, "delta": {"mail": [...], "reports": null}}    null: the group is gone
{"seq": 8, "at": <ms>, "age": <ms>}                                               nothing new, we are alive

`seq` rises by one with every delta. `at` is when the counts were true by the database's clock, `age`
how long ago that was when the message was sent, as a browser's clock may be wrong. Both are
absent as long as there are no counts. Where there are very many groups several messages of the same
`seq` follow each other, and `left` in each says how many are still to come.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ..counts import Counts

GroupCounts = Mapping[str, Counts]
Lists = dict[str, list[int] | None]

# With what stands around it, less than the 64 KiB that the server's websockets carry at once.
MOST_BYTES = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The counts of every group as they were at a moment."""

    at_ms: int  # By the database's clock.
    read_at_s: float  # By this process's monotonic clock.
    groups: GroupCounts


def full(seq: int, snapshot: Snapshot) -> list[str]:
    return _messages(seq, snapshot, "full", _lists(snapshot.groups))


def delta(seq: int, snapshot: Snapshot, changed: Mapping[str, Counts | None]) -> list[str]:
    return _messages(seq, snapshot, "delta", _lists(changed))


def heartbeat(seq: int, snapshot: Snapshot | None) -> list[str]:
    return [_message(seq, snapshot)]


def difference(before: GroupCounts, after: GroupCounts) -> dict[str, Counts | None]:
    """The groups whose counts are others now; None for those that are gone."""
    gone: dict[str, Counts | None] = dict.fromkeys(before.keys() - after.keys())
    return gone | {name: counts for name, counts in after.items() if before.get(name) != counts}


def _messages(seq: int, snapshot: Snapshot, kind: str, lists: Lists) -> list[str]:
    pieces = list(_pieces(lists))
    return [
        _message(seq, snapshot, **{kind: piece}, left=left)
        for piece, left in zip(pieces, reversed(range(len(pieces))), strict=True)
    ]


def _pieces(lists: Lists) -> Iterator[Lists]:
    """The same groups in as many pieces as the size of a message makes necessary."""
    if len(lists) <= 1 or len(orjson.dumps(lists)) <= MOST_BYTES:
        yield lists
        return
    items = list(lists.items())
    yield from _pieces(dict(items[: len(items) // 2]))
    yield from _pieces(dict(items[len(items) // 2 :]))


def _message(seq: int, snapshot: Snapshot | None, **content: Any) -> str:
    age = {"at": snapshot.at_ms, "age": _age_ms(snapshot)} if snapshot else {}
    return orjson.dumps({"seq": seq, **age, **content}).decode()


def _age_ms(snapshot: Snapshot) -> int:
    return round((time.monotonic() - snapshot.read_at_s) * 1000)


def _lists(groups: Mapping[str, Counts | None]) -> Lists:
    return {name: _list(counts) if counts else None for name, counts in groups.items()}


def _list(counts: Counts) -> list[int]:
    return [counts.ready, counts.claimed, counts.expired, counts.scheduled, counts.failed]
