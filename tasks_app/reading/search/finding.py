"""Run a search within a time limit: choose an index, then scan it window by window."""

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
from ..pages import PAGE, Cursor
from .conditions import (
    DATA,
    EVERYTHING,
    HAS_ERROR,
    LARGEST,
    Condition,
    condition_of,
    every,
    first_added_up_to,
    matches,
    one_of,
    within,
)
from .grammar import Key, Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The rows to scan and their order: within a group the longest available first, otherwise the newest."""

    condition: Condition
    is_by_time: bool

    @property
    def order(self) -> str:
        return "available_at_ms, id" if self.is_by_time else "id DESC"

    def beyond(self, place: Cursor | None) -> Condition:
        """Return the condition for rows after the cursor; None stands for the start."""
        if place is None:
            return EVERYTHING
        if self.is_by_time:
            return Condition("(available_at_ms, id) > (%s, %s)", (place.at, place.id))
        return Condition("id < %s", (place.id,))

    def up_to(self, place: Cursor | None) -> Condition:
        """Return the condition for rows up to the cursor, inclusive; None stands for the end."""
        if place is None:
            return EVERYTHING
        if self.is_by_time:
            return Condition("(available_at_ms, id) <= (%s, %s)", (place.at, place.id))
        return Condition("id >= %s", (place.id,))


def plan_for(terms: Sequence[Term], now_ms: int, dialect: Dialect) -> Plan:
    """Return the smallest scan for the terms: an id, failed tasks, a group, its future, or everything."""
    asked = [term for term in terms if not term.is_excluded]
    ids = [condition_of(term, now_ms, dialect) for term in asked if term.key is Key.ID]
    groups = [
        condition_of(term, now_ms, dialect)
        for term in asked
        if term.key is Key.GROUP and not str(term.value).endswith("*")
    ]
    has_error = [Condition(HAS_ERROR)] if any(term.key is Key.ERROR for term in asked) else []
    has_failed = [condition_of(term, now_ms, dialect) for term in asked if term.value in (State.RETRYING, State.FAILED)]
    failed = [*has_error, *has_failed]
    is_by_time = bool(groups) and not (ids or failed)
    is_future = is_by_time and any(term.value in (State.CLAIMED, State.SCHEDULED) for term in asked)
    future = [Condition("available_at_ms > %s", (now_ms,))] if is_future else []
    return Plan(condition=every([*ids, *groups, *failed, *future]), is_by_time=is_by_time)


LIMIT_S = 0.9  # Leaves time to answer within a second.
FIRST_WINDOW, LARGEST_WINDOW = 100, 100_000  # Tasks that one statement scans.
QUICK_S = 0.1  # After a window that took less, the next one is larger.
CANDIDATES = 2_000  # Tasks whose data is read and parsed at once.
AT_ONCE = 1_000  # Ids in a portion of all results.
IN_VAIN = 500  # Tasks to scan before the index of labels is used.
RARE = 10_000  # With at most so many tasks, scan only those that have the labels.


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The ids of tasks that match every term, in the order of the plan."""

    ids: list[int]
    after: Cursor | None  # Where to continue; None: there are no more, or nothing was scanned in time.
    is_cut_short: bool  # The time ran out before the page was full.
    looked_at: int  # The least number of scanned tasks.
    at_ms: int


def find(
    terms: Sequence[Term],
    *,
    scope: GroupScope = EVERY_GROUP,
    after: Cursor | None = None,
    limit: int = PAGE,
    seconds: float = LIMIT_S,
) -> Found:
    """Return up to `limit` tasks beyond `after`. Without terms, all tasks match."""
    scan = Scan(terms=terms, scope=scope, place=after, limit=limit)
    scan.run_for(seconds)
    return Found(
        ids=[place.id for place in scan.found[:limit]],
        after=scan.next_place,
        is_cut_short=not scan.is_over,
        looked_at=scan.looked_at,
        at_ms=scan.now_ms,
    )


def find_all(terms: Sequence[Term], *, scope: GroupScope = EVERY_GROUP) -> Iterator[list[int]]:
    """Yield the ids of all tasks that match every term, in portions, without a time limit.

    The result is not a snapshot: none is held between portions. It leaves out tasks that are added
    after the start, so that it ends. A task that is replaced in between may come under two ids or not at all.
    """
    scan = Scan(terms=terms, scope=scope, place=None, limit=AT_ONCE, also=first_added_up_to(Task.objects.newest_id()))
    while not scan.is_at_end:
        scan.step()
        yield [place.id for place in scan.found]
        scan.found.clear()


@dataclass(kw_only=True)
class Scan:
    """A search under way: the tasks found so far, and the place that it has reached."""

    terms: Sequence[Term]
    scope: GroupScope
    place: Cursor | None  # Rows up to here are scanned; None: not started.
    limit: int
    also: Condition = EVERYTHING  # An additional condition.
    now_ms: int = 0  # The meaning of "now" in terms; 0: the database's time.
    found: list[Cursor] = field(default_factory=list)
    looked_at: int = 0  # The least number of scanned tasks.
    window: int = field(default_factory=lambda: FIRST_WINDOW)
    is_at_end: bool = False
    has_tried_labels: bool = False  # Whether the index of labels was asked already.

    def __post_init__(self) -> None:
        self.using = Task.objects.db
        self.now_ms = self.now_ms or Task.objects.now_ms()
        dialect = dialect_of(self.using)
        self._plan = plan_for(self.terms, self.now_ms, dialect)
        asked = [condition_of(term, self.now_ms, dialect) for term in self.terms]
        self._asked = every([*asked, within(self.scope), self.also])
        self._labels = [
            condition_of(term, self.now_ms, dialect)
            for term in self.terms
            if term.key in (Key.LABEL, Key.FAILED_FROM) and not term.is_excluded
        ]
        self._paths = [term for term in self.terms if term.key is Key.DATA and term.name]

    @property
    def is_over(self) -> bool:
        return self.is_at_end or len(self.found) > self.limit

    @property
    def next_place(self) -> Cursor | None:
        """Return the cursor at which the next page continues; None at the end, or before the start."""
        if len(self.found) > self.limit:
            return self.found[self.limit - 1]
        return None if self.is_at_end else self.place

    def run_for(self, seconds: float) -> None:
        """Scan until enough tasks are found, all rows are scanned, or the time is up."""
        end = time.monotonic() + seconds
        while not self.is_over and (left_s := end - time.monotonic()) > 0:
            try:
                with at_most(left_s, using=self.using):
                    self.step()
            except TookTooLong:
                break

    def step(self) -> None:
        """Scan a window. Windows grow while the scan is quick."""
        if self._labels and not self.has_tried_labels and self.looked_at >= IN_VAIN:
            self.has_tried_labels = True
            labelled = self.labelled
            ids = [task_id for (task_id,) in self._rows(labelled.sql, labelled)]
            if len(ids) <= RARE:
                self._plan = replace(self._plan, condition=one_of(ids))
        began = time.monotonic()
        if not self._scan_window():
            self.window = max(self.window // 2, FIRST_WINDOW)
        elif not self.is_at_end:  # The window was full.
            self.looked_at += self.window
            if time.monotonic() - began < QUICK_S:
                self.window = min(4 * self.window, LARGEST_WINDOW)

    @property
    def labelled(self) -> Condition:
        """Return a query for the ids of tasks with the labels, at most one more than RARE."""
        labels = every(self._labels)
        sql = f"SELECT id FROM tasks_app_task WHERE {labels.sql} LIMIT {RARE + 1}"  # noqa: S608 - all words are ours
        return Condition(sql, labels.parameters)

    def _scan_window(self) -> bool:
        """Scan the next window. Returns whether it was scanned to its end."""
        plan, window = self._plan, self.window
        ahead = every([plan.condition, plan.beyond(self.place)])
        # In the order of ids, the index has all that the cursor needs.
        columns = "available_at_ms, id" if plan.is_by_time else "0, id"
        rows = self._rows(
            f"SELECT {columns} FROM tasks_app_task WHERE {ahead.sql}"  # noqa: S608 - all words are ours
            f" ORDER BY {plan.order} LIMIT 1 OFFSET {window - 1}",
            ahead,
        )
        last = Cursor(*rows[0]) if rows else None
        most = CANDIDATES if self._paths else self.limit + 1 - len(self.found)
        ahead = every([plan.condition, plan.beyond(self.place), plan.up_to(last)])
        data = f"CASE WHEN length({DATA}) <= {LARGEST} THEN {DATA} END" if self._paths else "NULL"
        # The inner limit keeps both databases from merging the conditions and choosing another index.
        rows = self._rows(
            f"SELECT available_at_ms, id, {data} FROM"  # noqa: S608 - all words are ours
            f" (SELECT * FROM tasks_app_task WHERE {ahead.sql} ORDER BY {plan.order} LIMIT {window}) AS found"
            f" WHERE {self._asked.sql} ORDER BY {plan.order} LIMIT {most}",
            ahead,
            self._asked,
        )
        candidates = [Cursor(at_ms, task_id) for at_ms, task_id, _ in rows]
        self.found += [
            place
            for place, (_, _, data) in zip(candidates, rows, strict=True)
            if all(matches(term, data and bytes(data)) for term in self._paths)
        ]
        if len(candidates) == most:
            self.place = candidates[-1]
            return False
        self.place, self.is_at_end = last or self.place, last is None
        return True

    def _rows(self, sql: str, *conditions: Condition) -> list[tuple[Any, ...]]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, [value for condition in conditions for value in condition.parameters])
            return list(cursor.fetchall())
