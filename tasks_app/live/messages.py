"""What goes over the socket: state and sequence numbers, never increments, because a message may be left out.

A page says what it shows, and gets that alone, however many groups there are:

{"type": "full", "groups": ["mail"], "folders": ["mail/"], "filter": "in", "totals": true}

{"seq": 7, "at": <ms>, "age": <ms>, "full": {
    "groups": {"mail": [ready, claimed, expired, scheduled, failed]},             null: the group is gone
    "folders": {"mail/": [groups, ready, claimed, expired, scheduled, failed]},   of what the filter finds in it
    "total": [ready, claimed, expired, scheduled, failed],                        over all groups
    "holding": [groups, in how many there is a ready one, a claimed one, ...],
    "found": 17,                                                                  groups that the filter finds
    "summed": <ms>                                                                when these last three were true
}}
{"seq": 8, "at": <ms>, "age": <ms>, "delta": {"groups": {"mail": [...]}}}         what has changed
    Where jobs and commands are kept that have ended, a list has one more number: how many tasks are finished.
{"seq": 8, "at": <ms>, "age": <ms>}                                               nothing new, we are alive

`seq` rises by one with every delta. `at` is when the counts were true by the database's clock, `age`
how long ago that was when the message was made, as a browser's clock may be wrong. Both are
absent as long as there are no counts. Where there are very many groups, totals and folders come later than groups.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ..reading.counts import COUNTED, Counts
from ..writer.totals import EVERYTHING, Part, Summary

# Keys: what it is, and the name of a group or a folder.
Content = dict[tuple[str, str], Any]
SUMMED = ("summed", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What a page shows. Pages that show the same share one."""

    groups: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()  # Beginnings of names.
    searched: str = ""
    totals: bool = False

    @property
    def parts(self) -> list[Part]:
        """What has to be added up for it."""
        parts = [Part(prefix, self.searched) for prefix in self.folders]
        if self.totals:
            parts += [EVERYTHING, *([Part(searched=self.searched)] if self.searched else [])]
        return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The counts of the groups that pages show, as they were at a moment."""

    at_ms: int  # By the database's clock.
    read_at_s: float  # By this process's monotonic clock.
    groups: Mapping[str, Counts]


def content_of(watch: Watch, groups: Mapping[str, Counts], sums: Mapping[Part, Summary]) -> Content:
    """What there is to say to a page, without the sums that are not known yet."""
    content: Content = {
        ("groups", name): _list(groups[name]) if name in groups else None for name in sorted(watch.groups)
    }
    for prefix in sorted(watch.folders):
        if folder := sums.get(Part(prefix, watch.searched)):
            content["folders", prefix] = [folder.groups, *_sums(folder)]
    if watch.totals and (every := sums.get(EVERYTHING)):
        content["total", ""] = _sums(every)
        content["holding", ""] = [every.groups, *(every.holding[state] for state in COUNTED)]
    if watch.totals and (found := sums.get(Part(searched=watch.searched))):
        content["found", ""] = found.groups
        content[SUMMED] = found.at_ms
    return content


def full(seq: int, snapshot: Snapshot, content: Content) -> str:
    return _message(seq, snapshot, full=_nested(content))


def delta(seq: int, snapshot: Snapshot, changed: Content) -> str:
    return _message(seq, snapshot, delta=_nested(changed))


def heartbeat(seq: int, snapshot: Snapshot | None) -> str:
    return _message(seq, snapshot)


def difference(before: Content, after: Content) -> Content:
    """What is another now. That the same was added up again is nothing new."""
    changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {} if changed.keys() == {SUMMED} else changed


def _nested(content: Content) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for (kind, name), value in content.items():
        if kind in ("groups", "folders"):
            nested.setdefault(kind, {})[name] = value
        else:
            nested[kind] = value
    return nested


def _message(seq: int, snapshot: Snapshot | None, **content: Any) -> str:
    age = {"at": snapshot.at_ms, "age": _age_ms(snapshot)} if snapshot else {}
    return orjson.dumps({"seq": seq, **age, **content}).decode()


def _age_ms(snapshot: Snapshot) -> int:
    return round((time.monotonic() - snapshot.read_at_s) * 1000)


def _list(counts: Counts) -> list[int]:
    finished = [counts.finished] if counts.finished else []
    return [counts.ready, counts.claimed, counts.expired, counts.scheduled, counts.failed, *finished]


def _sums(summary: Summary) -> list[int]:
    finished = [summary.finished] if summary.finished else []
    return [*(getattr(summary.numbers, state) for state in COUNTED), *finished]
