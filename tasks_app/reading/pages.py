"""Pages of ordered rows by the key of their last row: without an offset or a count, at any size of the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Any, NamedTuple, Self, TypeVar

from django.db.models import Q, QuerySet

from taskstore.errors import InvalidInput
from taskstore.types.scalars import INT64_MAX, INT64_MIN, whole

PAGE = 50
BY_TIME = ("available_at_ms", "id")

Rows = TypeVar("Rows", bound=QuerySet[Any])


class Cursor(NamedTuple):
    """The key of the row at the end of a page: its time in the unit of the table, and its id. As text `<at>.<id>`."""

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


def beyond(rows: Rows, order: Sequence[str], key: tuple[Any, int] | None) -> Rows:
    """Return the rows after this key (None: all) in this order: by id, or by another column and the id."""
    rows = rows.order_by(*order)
    if key is None:
        return rows
    side = "lt" if order[0].startswith("-") else "gt"
    after = {f"id__{side}": key[1]}
    if len(order) == 1:
        return rows.filter(**after)
    first = order[0].removeprefix("-")
    # The first condition bounds the scan of the index, which the second alone would not.
    return rows.filter(
        Q(**{f"{first}__{side}e": key[0]}), Q(**{f"{first}__{side}": key[0]}) | Q(**{first: key[0]}, **after)
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
