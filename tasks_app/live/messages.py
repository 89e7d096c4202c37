"""The messages of the websocket: state and sequence numbers, never increments, because messages may be skipped.

A page names its groups, and gets the counts of these alone:

{"type": "full", "groups": ["mail"], "folders": ["mail/"], "filter": "in", "totals": true, "progress": ["17"],
    "shown": ["batch 17"]}

{"seq": 7, "at": <ms>, "age": <ms>, "full": {
    "groups": {"mail": [ready, claimed, ..., errors]},     the states as in State, then the tasks with an error in any
                                                           state; null: the group no longer exists
    "folders": {"mail/": [groups, ready, claimed, ...]},   of the groups that match the filter
    "total": [ready, claimed, ...],                        of all groups
    "holding": [groups, groups with ready tasks, with claimed tasks, ...],
    "found": 17,                                                                  groups that match the filter
    "summed": <ms>                                                                the time of the last three
    "progress": {"17": [0.42, "page 7 of 20", <ms>]}                              null: the task has none
    "shown": {"batch 17": "3f2a"}                          other parts: another text says that one has changed
}}
{"seq": 8, "at": <ms>, "age": <ms>, "delta": {"groups": {"mail": [...]}}}         the changes
{"seq": 8, "at": <ms>, "age": <ms>}                                               a heartbeat

`seq` rises by one with every delta. `at` is the time of the counts by the database's clock, `age` their age when the
message was made, as a browser's clock may be wrong. Both are absent while there are no counts. With very many groups,
totals and folders come later than groups.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from taskstore.types.progress import Progress
from taskstore.types.texts import visible

from ..writer.totals import EVERYTHING, STATES, Numbers, Part, Summary

# Keys: the kind, and the name of a group or a folder.
Content = dict[tuple[str, str], Any]
SUMMED = ("summed", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The groups and folders of a page. Equal pages share one."""

    groups: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()  # Prefixes of names.
    searched: str = ""
    totals: bool = False
    progress: frozenset[int] = frozenset()  # The origins of tasks.
    shown: frozenset[str] = frozenset()  # What else the page shows; see tasks_app/live/parts.py.
    with_texts: bool = False  # Whether the person may see what the tasks say of their progress.

    @property
    def parts(self) -> list[Part]:
        """Return the parts of the store whose sums the page needs."""
        parts = [Part(prefix, self.searched) for prefix in self.folders]
        if self.totals:
            parts += [EVERYTHING, *([Part(searched=self.searched)] if self.searched else [])]
        return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The counts of the groups on pages, at a moment."""

    at_ms: int  # By the database's clock.
    read_at_s: float  # By this process's monotonic clock.
    groups: Mapping[str, Numbers]
    progress: Mapping[int, Progress] = field(default_factory=dict)  # By origin.
    shown: Mapping[str, str] = field(default_factory=dict)  # By the name of a part: another text when it has changed.


def content_of(
    watch: Watch,
    groups: Mapping[str, Numbers],
    sums: Mapping[Part, Summary],
    progress: Mapping[int, Progress] | None = None,
    shown: Mapping[str, str] | None = None,
) -> Content:
    """Return the content for a page, without sums that are not known yet."""
    content: Content = {
        ("groups", name): _list(groups[name]) if name in groups else None for name in sorted(watch.groups)
    }
    for prefix in sorted(watch.folders):
        if folder := sums.get(Part(prefix, watch.searched)):
            content["folders", prefix] = [folder.groups, *_list(folder.numbers)]
    if watch.totals and (every := sums.get(EVERYTHING)):
        content["total", ""] = _list(every.numbers)
        content["holding", ""] = [every.groups, *(every.holding[state] for state in STATES)]
    if watch.totals and (found := sums.get(Part(searched=watch.searched))):
        content["found", ""] = found.groups
        content[SUMMED] = found.at_ms
    for origin in sorted(watch.progress):
        reported = (progress or {}).get(origin)
        content["progress", str(origin)] = reported and [
            reported.done,
            visible(reported.text) if watch.with_texts else "",
            reported.at_ms,
        ]
    for name in sorted(watch.shown):
        content["shown", name] = (shown or {}).get(name, "")
    return content


def full(seq: int, snapshot: Snapshot, content: Content) -> str:
    return _message(seq, snapshot, full=_nested(content))


def delta(seq: int, snapshot: Snapshot, changed: Content) -> str:
    return _message(seq, snapshot, delta=_nested(changed))


def heartbeat(seq: int, snapshot: Snapshot | None) -> str:
    return _message(seq, snapshot)


def difference(before: Content, after: Content) -> Content:
    """Return the changed content; empty when only the time of the sums has changed."""
    changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {} if changed.keys() == {SUMMED} else changed


def _nested(content: Content) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for (kind, name), value in content.items():
        if kind in ("groups", "folders", "progress", "shown"):
            nested.setdefault(kind, {})[name] = value
        else:
            nested[kind] = value
    return nested


def _message(seq: int, snapshot: Snapshot | None, **content: Any) -> str:
    age: dict[str, int] = {}
    if snapshot:
        age = {"at": snapshot.at_ms, "age": round((time.monotonic() - snapshot.read_at_s) * 1000)}
    return orjson.dumps({"seq": seq, **age, **content}).decode()


def _list(numbers: Numbers) -> list[int]:
    return [*(getattr(numbers, state) for state in STATES), numbers.errors]
