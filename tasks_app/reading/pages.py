"""Pages of ordered rows by the key of their last row: without an offset or a count, at any size of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from heapq import nlargest
from typing import Any, Self, TypeVar

from django.db.models import Q, QuerySet
from django.db.models.functions import Left

from taskstore.errors import InvalidInput
from taskstore.types.scalars import INT64_MAX, INT64_MIN, whole
from taskstore.types.tasks import State

from ..database import COLUMNS
from ..managers import TaskQuerySet
from ..models import Task

PAGE = 50
BY_TIME = ("available_at_ms", "id")

Rows = TypeVar("Rows", bound=QuerySet[Any])


@dataclass(frozen=True, order=True, slots=True)
class Cursor:
    """The key of the row at the end of a page: its time in the unit of the table, and its id. As text `<at>.<id>`.

    It is no tuple: `{% querystring %}` would repeat the parameter for each part of one.
    """

    at: int
    id: int

    def __str__(self) -> str:
        return f"{self.at}.{self.id}"

    @classmethod
    def of(cls, task: Any) -> Self:
        return cls(task.available_at_ms, task.id)

    @classmethod
    def read(cls, text: str | None, field: str = "after", least: int = INT64_MIN, most: int = INT64_MAX) -> Self | None:
        """Parse the cursor of a link, whose time is within these bounds. Raises InvalidInput about `field`."""
        if text is None:
            return None
        at, _, id = text.partition(".")
        numbers = whole(at, least, most), whole(id, INT64_MIN)
        if numbers[0] is None or numbers[1] is None:
            raise InvalidInput({field: ["must be a position in the list, as in the links of its pages"]})
        return cls(numbers[0], numbers[1])


END = Cursor(INT64_MAX, INT64_MAX)


def beyond(rows: Rows, order: Sequence[str], after: Cursor | None, at: Any = None) -> Rows:
    """Return the rows after this key (None: all) in this order: by id, or by another column and the id.

    `at`: the value of that column, if it is not the number in the cursor.
    """
    rows = rows.order_by(*order)
    if after is None:
        return rows
    side = "lt" if order[0].startswith("-") else "gt"
    by_id = {f"id__{side}": after.id}
    if len(order) == 1:
        return rows.filter(**by_id)
    first, value = order[0].removeprefix("-"), after.at if at is None else at
    # The first condition bounds the scan of the index, which the second alone would not.
    return rows.filter(
        Q(**{f"{first}__{side}e": value}), Q(**{f"{first}__{side}": value}) | Q(**{first: value}, **by_id)
    )


def backwards(order: Iterable[str]) -> tuple[str, ...]:
    return tuple(name[1:] if name.startswith("-") else f"-{name}" for name in order)


def latest(queries: Iterable[QuerySet[Any]], after: Cursor | None, limit: int) -> tuple[list[Cursor], Cursor | None]:
    """Return the places of the latest tasks of several queries together, and the cursor of the next page, if any.

    Each query has an index in this order; all together have none.
    """
    firsts = [
        Cursor(*key)
        for tasks in queries
        for key in beyond(tasks, backwards(BY_TIME), after).values_list(*BY_TIME)[: limit + 1]
    ]
    found = nlargest(limit + 1, firsts)
    return found[:limit], found[limit - 1] if len(found) > limit else None


# ---- List a group's tasks in pages: by key, without an offset or a count, at any size of the group


PREVIEW_BYTES = 400
PREVIEW_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A task in a list, with cut data and error."""

    id: int
    group: str
    state: State
    available_at_ms: int
    owner: int
    priority: int
    claims: int
    labels: Mapping[str, str]
    error: str  # The beginning of the error.
    data: bytes | None  # The beginning of the data; None: not requested.
    size: int | None  # Bytes of the whole data.


# The columns that a list shows unchanged.
WHOLE = [each.name for each in fields(Row) if each.name in COLUMNS and each.name not in ("data", "error")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some tasks in order, and the cursors of the pages before and after, None when there is none."""

    rows: list[Row]
    before: Cursor | None
    after: Cursor | None
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The first available time of each state in a group; None when no task has the state."""

    oldest_ready_ms: int | None
    oldest_expired_ms: int | None
    next_lease_end_ms: int | None
    next_scheduled_ms: int | None
    at_ms: int


def page_of(
    group: str,
    state: State | None = None,
    *,
    after: Cursor | None = None,
    before: Cursor | None = None,
    with_data: bool = False,
) -> Page:
    """Return the tasks of the group in this state (None: all) that follow `after` or precede `before`.

    The longest available come first. What has failed is sorted by id, newest first, as in its index.
    """
    at_ms = Task.objects.now_ms()
    tasks = Task.objects.get_queryset().in_group(group)
    tasks, order = _previewed(tasks if state is None else tasks.in_state(state, at_ms), with_data), _order(state)
    if before is not None:
        rows = list(beyond(tasks, backwards(order), None if before == END else before)[: PAGE + 1])
        if len(rows) > PAGE:
            return _page(rows[PAGE - 1 :: -1], at_ms, has_before=True, has_after=before != END)
        # Too few tasks precede the cursor for a full page: show the first page instead.
    rows = list(beyond(tasks, order, after)[: PAGE + 1])
    return _page(rows[:PAGE], at_ms, has_before=after is not None, has_after=len(rows) > PAGE)


def rows_of(ids: Sequence[int], at_ms: int, *, with_data: bool = False) -> list[Row]:
    """Return the tasks with these ids, in their order, without those that no longer exist."""
    found = {task.id: task for task in _previewed(Task.objects.get_queryset().filter(id__in=ids), with_data)}
    return [_row(found[task_id], at_ms) for task_id in ids if task_id in found]


def facts_of(group: str) -> Facts:
    """Return the available time of the first task of each state."""
    at_ms = Task.objects.now_ms()
    tasks = Task.objects.get_queryset().in_group(group).longest_available_first()

    def first(state: State) -> int | None:
        return tasks.in_state(state, at_ms).values_list("available_at_ms", flat=True).first()

    return Facts(
        oldest_ready_ms=first(State.READY),
        oldest_expired_ms=first(State.EXPIRED),
        next_lease_end_ms=first(State.CLAIMED),
        next_scheduled_ms=first(State.SCHEDULED),
        at_ms=at_ms,
    )


def _previewed(tasks: TaskQuerySet, with_data: bool) -> TaskQuerySet:
    """Read only the beginnings of data and error."""
    tasks = tasks.only(*WHOLE, "leased_since_ms", "standing")
    if with_data:
        tasks = tasks.beginnings(PREVIEW_BYTES)
    return tasks.annotate(error_start=Left("error", PREVIEW_CHARACTERS))


def _order(state: State | None) -> Sequence[str]:
    """Return the order of an index."""
    return ("-id",) if state in (State.RETRYING, State.FAILED) else BY_TIME


def _page(found: list[Task], at_ms: int, *, has_before: bool, has_after: bool) -> Page:
    return Page(
        rows=[_row(task, at_ms) for task in found],
        before=Cursor.of(found[0]) if found and has_before else None,
        after=Cursor.of(found[-1]) if found and has_after else None,
        at_ms=at_ms,
    )


def _row(task: Task, at_ms: int) -> Row:
    data = getattr(task, "data_start", None)
    return Row(
        **{name: getattr(task, name) for name in WHOLE},
        state=task.state(at_ms),
        error=task.error_start,  # type: ignore[attr-defined]
        data=None if data is None else bytes(data),
        size=getattr(task, "data_size", None),
    )
