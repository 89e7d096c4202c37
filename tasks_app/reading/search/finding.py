"""Run a search: which index helps, and how far it looked."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connections

from taskstore.types.tasks import State

from ...core.operations import EVERY_GROUP, GroupScope
from ...database import Dialect, dialect_of
from ...database.time_limits import TookTooLong, at_most
from ...models import Task
from ..listing import PAGE, Cursor
from . import paths
from .conditions import DATA, EVERYTHING, HAS_FAILED, Condition, condition_of, every, first_added_up_to, one_of, within
from .grammar import Key, Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Within a group the longest available come first, as its page has them; else the newest."""

    condition: Condition  # What lies on it.
    is_by_time: bool

    @property
    def order(self) -> str:
        return "available_at_ms, id" if self.is_by_time else "id DESC"

    def beyond(self, place: Cursor | None) -> Condition:
        """What comes after the place; None: everything."""
        if place is None:
            return EVERYTHING
        if self.is_by_time:
            return Condition("(available_at_ms, id) > (%s, %s)", (place.available_at_ms, place.id))
        return Condition("id < %s", (place.id,))

    def through(self, ids: Sequence[int]) -> Way:
        """In the same order, past these tasks only."""
        return replace(self, condition=one_of(ids))

    def up_to(self, place: Cursor | None) -> Condition:
        """What comes before the place, and what is there; None: everything."""
        if place is None:
            return EVERYTHING
        if self.is_by_time:
            return Condition("(available_at_ms, id) <= (%s, %s)", (place.available_at_ms, place.id))
        return Condition("id >= %s", (place.id,))


def way_to(terms: Sequence[Term], now_ms: int, dialect: Dialect) -> Way:
    """The shortest one to what meets the terms: an id, failed tasks, a group, its future, or everything."""
    asked = [term for term in terms if not term.is_excluded]
    to_ids = [condition_of(term, now_ms, dialect) for term in asked if term.key is Key.ID]
    to_groups = [condition_of(term, now_ms, dialect) for term in asked if _is_one_group(term)]
    to_failed = [Condition(HAS_FAILED)] if any(map(_is_failed, asked)) else []
    is_by_time = bool(to_groups) and not (to_ids or to_failed)
    lies_ahead = is_by_time and any(term.value in (State.CLAIMED, State.SCHEDULED) for term in asked)
    to_future = [Condition("available_at_ms > %s", (now_ms,))] if lies_ahead else []
    return Way(condition=every([*to_ids, *to_groups, *to_failed, *to_future]), is_by_time=is_by_time)


def _is_one_group(term: Term) -> bool:
    return term.key is Key.GROUP and not str(term.value).endswith("*")


def _is_failed(term: Term) -> bool:
    return term.key is Key.ERROR or term.value is State.FAILED


LIMIT_S = 0.9  # The answer, with all that is around it, is there within a second.
FIRST_WINDOW, LARGEST_WINDOW = 100, 100_000  # Tasks that one statement looks at.
QUICK_S = 0.1  # A window that takes less is followed by a larger one.
CANDIDATES = 2_000  # Whose data is read at once to be looked into.
AT_ONCE = 1_000  # Ids of all that is found.
IN_VAIN = 500  # Tasks that are looked at before the index of labels is asked which ones bear those that are wanted.
RARE = 10_000  # Tasks at most that are looked at one by one because they bear them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Ids of tasks that meet every term, in the order of the way."""

    ids: list[int]
    after: Cursor | None  # Where to go on; None: there are no more, or nothing was looked at in time.
    is_cut_short: bool  # The time was up before the page was full.
    looked_at: int  # Tasks, at least.
    at_ms: int


def find(
    terms: Sequence[Term],
    *,
    scope: GroupScope = EVERY_GROUP,
    after: Cursor | None = None,
    limit: int = PAGE,
    seconds: float = LIMIT_S,
) -> Found:
    """Up to `limit` tasks beyond `after`. All tasks meet no term at all."""
    walk = Walk(terms=terms, scope=scope, place=after, limit=limit)
    walk.go_on_for(seconds)
    return Found(
        ids=[place.id for place in walk.found[:limit]],
        after=walk.place_to_go_on,
        is_cut_short=not walk.is_over,
        looked_at=walk.looked_at,
        at_ms=walk.now_ms,
    )


def find_all(terms: Sequence[Term], *, scope: GroupScope = EVERY_GROUP) -> Iterator[list[int]]:
    """All tasks that meet every term, a few at a time, however long it takes. Ids, in the order of the way.

    No picture of one moment: no snapshot is held between the pages. What is added meanwhile is left
    out, so that it ends; what is replaced meanwhile may come under two ids, or not at all.
    """
    walk = Walk(terms=terms, scope=scope, place=None, limit=AT_ONCE, also=first_added_up_to(Task.objects.newest_id()))
    while not walk.is_at_end:
        walk.go_on()
        yield [place.id for place in walk.found]
        walk.found.clear()


@dataclass(kw_only=True)
class Walk:
    """What was found on the way so far, and up to where."""

    terms: Sequence[Term]
    scope: GroupScope
    place: Cursor | None  # Looked at up to here; None: not begun.
    limit: int
    also: Condition = EVERYTHING  # What a row has to meet beside the terms.
    now_ms: int = 0  # The time that "now" means; 0: that of the database.
    found: list[Cursor] = field(default_factory=list)
    looked_at: int = 0  # Tasks, at least.
    window: int = field(default_factory=lambda: FIRST_WINDOW)
    is_at_end: bool = False
    is_shortened: bool = False  # Or it can't be.

    def __post_init__(self) -> None:
        self.using = Task.objects.db
        self.now_ms = self.now_ms or Task.objects.now_ms()
        dialect = dialect_of(self.using)
        self._way = way_to(self.terms, self.now_ms, dialect)
        asked = [condition_of(term, self.now_ms, dialect) for term in self.terms]
        self._asked = every([*asked, within(self.scope), self.also])
        self._labels = [condition_of(term, self.now_ms, dialect) for term in self.terms if _is_wanted_label(term)]
        self._paths = [term for term in self.terms if term.key is Key.DATA and term.name]

    @property
    def is_over(self) -> bool:
        return self.is_at_end or len(self.found) > self.limit

    @property
    def place_to_go_on(self) -> Cursor | None:
        if len(self.found) > self.limit:
            return self.found[self.limit - 1]
        return None if self.is_at_end else self.place

    def go_on_for(self, seconds: float) -> None:
        """Until enough is found, the way is at its end, or the time is up."""
        end = time.monotonic() + seconds
        while not self.is_over and (left_s := end - time.monotonic()) > 0:
            try:
                with at_most(left_s, using=self.using):
                    self.go_on()
            except TookTooLong:
                break

    def go_on(self) -> None:
        """Look at the next tasks: the quicker it goes, the more of them at once."""
        if self._labels and not self.is_shortened and self.looked_at >= IN_VAIN:
            self._shorten()
        began = time.monotonic()
        if not self.look_at(self.window):
            self.window = max(self.window // 2, FIRST_WINDOW)
        elif not self.is_at_end:  # There were as many.
            self.looked_at += self.window
            if time.monotonic() - began < QUICK_S:
                self.window = min(4 * self.window, LARGEST_WINDOW)

    def _shorten(self) -> None:
        """Where few tasks bear the labels, look at no others."""
        self.is_shortened = True
        ids = [task_id for (task_id,) in self._rows(self.bearers.sql, self.bearers)]
        if len(ids) <= RARE:
            self._way = self._way.through(ids)

    @property
    def bearers(self) -> Condition:
        """Selects the ids of those that bear the labels, or of some more than count as few."""
        labels = every(self._labels)
        sql = f"SELECT id FROM tasks_app_task WHERE {labels.sql} LIMIT {RARE + 1}"  # noqa: S608 - all words are ours
        return Condition(sql, labels.parameters)

    def look_at(self, window: int) -> bool:
        """Look at the next tasks of the way, at most so many. Says whether none of them is left for the next time."""
        last = self._last_of(window)
        most = CANDIDATES if self._paths else self.limit + 1 - len(self.found)
        candidates = self._candidates(window, last, most)
        self.found += [place for place, data in candidates if all(paths.matches(term, data) for term in self._paths)]
        if len(candidates) == most:
            self.place = candidates[-1][0]
            return False
        self.place, self.is_at_end = last or self.place, last is None
        return True

    def _last_of(self, window: int) -> Cursor | None:
        """The last task of the window; None when the way ends before."""
        ahead = every([self._way.condition, self._way.beyond(self.place)])
        # Of the newest the id alone tells the place, and the index holds it.
        columns = "available_at_ms, id" if self._way.is_by_time else "0, id"
        rows = self._rows(
            f"SELECT {columns} FROM tasks_app_task WHERE {ahead.sql}"  # noqa: S608 - all words are ours
            f" ORDER BY {self._way.order} LIMIT 1 OFFSET {window - 1}",
            ahead,
        )
        return Cursor(available_at_ms=rows[0][0], id=rows[0][1]) if rows else None

    def _candidates(self, window: int, last: Cursor | None, most: int) -> list[tuple[Cursor, bytes | None]]:
        """What the database takes for a match, up to `last`; with the data, if that is to be looked into."""
        ahead = every([self._way.condition, self._way.beyond(self.place), self._way.up_to(last)])
        data = f"CASE WHEN length({DATA}) <= {paths.LARGEST} THEN {DATA} END" if self._paths else "NULL"
        # With a limit inside, neither database mixes the conditions: the way stays the way.
        rows = self._rows(
            f"SELECT available_at_ms, id, {data} FROM"  # noqa: S608 - all words are ours
            f" (SELECT * FROM tasks_app_task WHERE {ahead.sql} ORDER BY {self._way.order} LIMIT {window}) AS found"
            f" WHERE {self._asked.sql} ORDER BY {self._way.order} LIMIT {most}",
            ahead,
            self._asked,
        )
        return [(Cursor(available_at_ms=at_ms, id=task_id), data and bytes(data)) for at_ms, task_id, data in rows]

    def _rows(self, sql: str, *conditions: Condition) -> list[tuple[Any, ...]]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, [value for condition in conditions for value in condition.parameters])
            return list(cursor.fetchall())


def _is_wanted_label(term: Term) -> bool:
    return term.key in (Key.LABEL, Key.FAILED_FROM) and not term.is_excluded
