"""The tiles of the overview: all groups together, and the workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..clients import Seen
from ..counts import Stats
from ..heartbeats import LOST_MS
from ..operations import State
from ..rates import LEVELS, levels
from .sparks import points_of
from .words import number

LINE_MINUTES = 30  # The boxes of the lines, in _level.html, are one less wide.
STATES = (State.READY, State.CLAIMED, State.SCHEDULED, State.EXPIRED, State.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """How many tasks are in a state, over all groups, and in how many groups there are any."""

    state: State
    tasks: int
    groups: int
    line: str  # Points of a line; empty: not yet known.


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """How many are heard, and what there is to say of the others."""

    heard: int
    note: str
    line: str


def lines_of_tiles() -> dict[str, str]:
    """The points of how much there was within the last half hour, by LEVELS; empty where that is not yet known."""
    past = levels(LINE_MINUTES)
    return {name: points_of(past.get(name, [])) for name in LEVELS}


def tiles_of(stats: Mapping[str, Stats], lines: Mapping[str, str]) -> list[Tile]:
    return [_tile(state, [getattr(each.counts, state) for each in stats.values()], lines[state]) for state in STATES]


def workers_of(clients: Iterable[Seen], lines: Mapping[str, str]) -> Workers:
    """Of those that were heard within a day."""
    ages_ms = [each.age_ms for each in clients]
    lost = sum(age_ms >= LOST_MS for age_ms in ages_ms)
    heard = len(ages_ms) - lost
    note = f"{number(lost)} lost" if lost else "all are heard" if heard else "none was heard"
    return Workers(heard=heard, note=note, line=lines["workers"])


def _tile(state: State, tasks_by_group: list[int], line: str) -> Tile:
    return Tile(state=state, tasks=sum(tasks_by_group), groups=sum(map(bool, tasks_by_group)), line=line)
