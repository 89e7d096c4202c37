"""A group's tasks page by page: by key, never by offset and never counted, whatever the size of the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

from django.db.models import Q
from django.db.models.functions import Left

from taskstore.errors import InvalidInput
from taskstore.types.tasks import State, holds_results

from ..core.validation import INT64_MAX, INT64_MIN
from ..database import COLUMNS
from ..managers import TaskQuerySet
from ..models import Task

PAGE = 50
PREVIEW_BYTES = 400
PREVIEW_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where a page ends: the key of a task there. As text `<available_at_ms>.<id>`."""

    available_at_ms: int
    id: int

    def __str__(self) -> str:
        return f"{self.available_at_ms}.{self.id}"

    @classmethod
    def read(cls, text: str, field: str) -> Self:
        """The place that a link named. Raises InvalidInput about `field` when it names none."""
        numbers = text.split(".")
        if len(numbers) != 2 or not all(_is_int64(number) for number in numbers):
            raise InvalidInput({field: ["must be a position in the list, as in the links of its pages"]})
        return cls(available_at_ms=int(numbers[0]), id=int(numbers[1]))


END = Cursor(available_at_ms=INT64_MAX, id=INT64_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A task as a list shows it: data and error cut."""

    id: int
    group: str
    state: State  # Ready, claimed, expired or scheduled.
    available_at_ms: int
    owner: int
    priority: int
    claims: int
    labels: Mapping[str, str]
    error: str  # Its beginning; empty: it did not fail.
    data: bytes | None  # Its beginning; None: not asked for.
    size: int | None  # Of the whole data in bytes.


# What a list shows of a task as it is, and what its state needs beside that.
WHOLE = [each.name for each in fields(Row) if each.name in COLUMNS and each.name not in ("data", "error")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some tasks in order, and the places where the pages before and after it begin, None when there is none."""

    rows: list[Row]
    before: Cursor | None
    after: Cursor | None
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Available times of a group: the first of each state, None when no task is in it."""

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
    """The tasks of the group in this state (None: all) that follow `after`, or that come before `before`.

    The longest available first; failed ones by their id, the newest first, as their index has them.
    """
    at_ms = Task.objects.now_ms()
    tasks = _selected(group, state, at_ms, with_data)
    if before is not None:
        rows = list(_beyond(tasks, before, state, forwards=False)[: PAGE + 1])
        if len(rows) > PAGE:
            return _page(rows[PAGE - 1 :: -1], at_ms, has_before=True, has_after=before != END)
        # So near to the beginning that the page would not be full: the first page is.
    rows = list(_beyond(tasks, after, state, forwards=True)[: PAGE + 1])
    return _page(rows[:PAGE], at_ms, has_before=after is not None, has_after=len(rows) > PAGE)


def rows_of(ids: Sequence[int], at_ms: int, *, with_data: bool = False) -> list[Row]:
    """The tasks with these ids, in their order; those that are gone are left out."""
    found = {task.id: task for task in _previewed(Task.objects.get_queryset().filter(id__in=ids), with_data)}
    return [_row(found[task_id], at_ms) for task_id in ids if task_id in found]


def facts_of(group: str) -> Facts:
    """Look at the first task of each state."""
    at_ms = Task.objects.now_ms()
    tasks = Task.objects.get_queryset().in_group(group).longest_available_first()

    def first(state: State) -> int | None:
        return tasks.in_state(state, at_ms).values_list("available_at_ms", flat=True).first()

    return Facts(
        oldest_ready_ms=None if holds_results(group) else first(State.READY),
        oldest_expired_ms=first(State.EXPIRED),
        next_lease_end_ms=first(State.CLAIMED),
        next_scheduled_ms=first(State.SCHEDULED),
        at_ms=at_ms,
    )


def _selected(group: str, state: State | None, at_ms: int, with_data: bool) -> TaskQuerySet:
    tasks = Task.objects.get_queryset().in_group(group)
    if state is not None:
        tasks = tasks.in_state(state, at_ms)
    return _previewed(tasks, with_data)


def _previewed(tasks: TaskQuerySet, with_data: bool) -> TaskQuerySet:
    """With the beginnings of data and error, in place of all of them."""
    tasks = tasks.only(*WHOLE, "leased_since_ms")
    if with_data:
        tasks = tasks.beginnings(PREVIEW_BYTES)
    return tasks.annotate(error_start=Left("error", PREVIEW_CHARACTERS))


def _beyond(tasks: TaskQuerySet, place: Cursor | None, state: State | None, *, forwards: bool) -> TaskQuerySet:
    """What lies beyond the place, in the order in which one meets it."""
    if state is State.FAILED:
        tasks = tasks.order_by("-id" if forwards else "id")
        if place is None or place == END:
            return tasks
        return tasks.filter(id__lt=place.id) if forwards else tasks.filter(id__gt=place.id)
    tasks = tasks.order_by("available_at_ms", "id") if forwards else tasks.order_by("-available_at_ms", "-id")
    if place is None:
        return tasks
    time, side = place.available_at_ms, "gt" if forwards else "lt"
    # The first condition bounds the scan of the index, which the second alone would not.
    return tasks.filter(
        Q(**{f"available_at_ms__{side}e": time}),
        Q(**{f"available_at_ms__{side}": time}) | Q(**{"available_at_ms": time, f"id__{side}": place.id}),
    )


def _page(found: list[Task], at_ms: int, *, has_before: bool, has_after: bool) -> Page:
    return Page(
        rows=[_row(task, at_ms) for task in found],
        before=_place(found[0]) if found and has_before else None,
        after=_place(found[-1]) if found and has_after else None,
        at_ms=at_ms,
    )


def _place(task: Task) -> Cursor:
    return Cursor(available_at_ms=task.available_at_ms, id=task.id)


def _row(task: Task, at_ms: int) -> Row:
    data = getattr(task, "data_start", None)
    return Row(
        **{name: getattr(task, name) for name in WHOLE},
        state=task.state(at_ms),
        error=task.error_start,  # type: ignore[attr-defined]
        data=None if data is None else bytes(data),
        size=getattr(task, "data_size", None),
    )


def _is_int64(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20 and INT64_MIN <= int(text) <= INT64_MAX
