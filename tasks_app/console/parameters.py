"""Read the parameters of pages strictly: invalid ones raise InvalidInput that names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from django.http import QueryDict

from taskstore.errors import InvalidInput
from taskstore.types.bulk import Kind
from taskstore.types.scalars import INT64_MAX, MOST_PRIORITY, whole
from taskstore.types.sentences import group_name, is_utf8
from taskstore.types.tasks import State

from ..access.people import Person
from ..access.policy import Action, may, scope_of
from ..bulk import Action as BulkAction
from ..bulk import Selection, action_named
from ..control.batches import Tab
from ..reading.counts import Span
from ..reading.exporting import Format
from ..reading.pages import END, Cursor
from ..reading.search import grammar
from ..reading.search.grammar import Key, Label, Term
from .name_tree import is_prefix, prefix_above
from .payload import Form

Choice = TypeVar("Choice", bound=StrEnum)

LONGEST_FILTER = 255
MOST_SELECTED = 500  # The ids of selected tasks must fit a URL.


class Notices(StrEnum):
    """How many notices to show."""

    WORST = "worst"
    ALL = "all"


class Order(StrEnum):
    """The column that sorts the groups."""

    TROUBLE = "trouble"
    NAME = "name"
    READY = "ready"
    OLDEST = "oldest"
    CLAIMED = "claimed"
    EXPIRED = "expired"
    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    FAILED = "failed"
    IN = "in"
    OUT = "out"


class View(StrEnum):
    """The layout of the groups."""

    FLAT = "flat"
    TREE = "tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The requested view, order, filter and page of the groups."""

    view: View
    order: Order
    is_downwards: bool
    searched: str  # Text in the names; empty: all.
    opened: Sequence[str]  # The prefixes of open folders; their parents are open too.
    page: int


def group_of(asked: QueryDict) -> str:
    return _name("name", asked.get("name", ""))


def state_of(asked: QueryDict) -> State | None:
    """Return the state, or None for all states."""
    return _one_of(State, "state", text) if (text := asked.get("state")) else None


def tab_of(asked: QueryDict) -> Tab | None:
    """Return the part of the batches to list, or None for all."""
    return _one_of(Tab, "tab", text) if (text := asked.get("tab")) else None


def label_of(asked: QueryDict) -> Label | None:
    """Return the label that filters a list, or None."""
    return grammar.label(text, "label") if (text := asked.get("label", "").strip()) else None


def order_of(asked: QueryDict) -> tuple[Order, bool]:
    """Return the column to sort by, and whether downwards (a leading minus). Defaults to the worst trouble first."""
    text = asked.get("sort") or "-trouble"
    return _one_of(Order, "sort", text.removeprefix("-")), text.startswith("-")


def arrangement_of(asked: QueryDict) -> Arrangement:
    order, is_downwards = order_of(asked)
    closed = prefixes_of(asked, "close")
    # Closing a folder closes the folders within it and keeps its parents open.
    opened = [*prefixes_of(asked, "open"), *map(prefix_above, closed)]
    return Arrangement(
        view=_one_of(View, "view", asked.get("view") or View.FLAT),
        order=order,
        is_downwards=is_downwards,
        searched=filter_of(asked),
        opened=[prefix for prefix in dict.fromkeys(opened) if prefix and not prefix.startswith(tuple(closed))],
        page=page_of(asked),
    )


def form_of(asked: QueryDict) -> Form | None:
    """Return the form in which to show data; None picks the best one."""
    return _one_of(Form, "as", text) if (text := asked.get("as")) else None


def format_of(asked: QueryDict) -> Format:
    """Return the file format of an export."""
    return _one_of(Format, "format", asked.get("format", ""))


def notices_of(asked: QueryDict) -> Notices:
    return _one_of(Notices, "notices", asked.get("notices") or Notices.WORST)


def span_of(asked: QueryDict) -> Span:
    """Return how far back to look; an hour by default."""
    return _one_of(Span, "span", asked.get("span") or Span.HOUR)


def filter_of(asked: QueryDict) -> str:
    return text_of(asked, "filter", LONGEST_FILTER)


def page_of(asked: QueryDict) -> int:
    return whole_number("page", asked.get("page") or "1", least=1)


def places_of(asked: QueryDict) -> tuple[Cursor | None, Cursor | None]:
    """Return the cursors after and before which a list continues."""
    before = asked.get("before")
    return Cursor.read(asked.get("after")), END if before == "end" else Cursor.read(before, "before")


def selection_of(asked: QueryDict, user: Person) -> Selection:
    """Return the selection: the tasks `id`, or with `all` those of the group `name` in a state, or that match `q`.

    Raises InvalidInput also for `all` without a group or search.
    """
    group = group_of(asked) if "name" in asked else ""
    bound = whole_number("bound", asked.get("bound") or "0")
    as_of_ms = whole_number("as_of", asked.get("as_of") or "0")
    if not asked.get("all"):
        return Selection(group=group, ids=ids_of(asked), bound=bound, as_of_ms=as_of_ms, scope=scope_of(user))
    q = asked.get("q", "")
    if not terms_of(q, user) and not group:
        raise InvalidInput({"q": ["must name a search or a group: the console never changes all tasks of the store"]})
    return Selection(group=group, state=state_of(asked), q=q, bound=bound, as_of_ms=as_of_ms, scope=scope_of(user))


def terms_of(q: str, user: Person) -> list[Term]:
    """Return the terms of a search. Raises InvalidInput also for a search of data that the person may not see."""
    terms = grammar.parse(q)
    if any(term.key is Key.DATA for term in terms) and not may(user, Action.SEE_PAYLOADS):
        raise InvalidInput({"q": ["data: your role does not allow you to see or search task data"]})
    return terms


def ids_of(asked: QueryDict) -> tuple[int, ...]:
    """Return the ids of the selected tasks, at least one."""
    ids = [whole_number(f"id[{place}]", text, least=1) for place, text in enumerate(asked.getlist("id"))]
    if not ids:
        raise InvalidInput({"id": ["must name at least one selected task"]})
    if len(ids) > MOST_SELECTED:
        raise InvalidInput(
            {"id": [f"must name at most {MOST_SELECTED} tasks, not {len(ids)}. Select all matching tasks instead"]}
        )
    return tuple(dict.fromkeys(ids))


def action_in(asked: QueryDict, name: str) -> BulkAction:
    """Return the action of this name with the options that its form holds. Raises InvalidInput."""
    action = action_named(name)
    options: dict[str, Any] = {}
    for option in action.words.options:
        field, text = option.name, asked.get(option.name, "")
        if option.default is None and not asked.get(f"set_{field}"):
            options[field] = None
            continue
        match option.kind:
            case Kind.FLAG:
                options[field] = bool(text)
            case Kind.TIME:
                options[field] = _utc_ms(field, text) if text else 0
            case Kind.MINUTES:
                options[field] = whole_number(field, text or "0")
            case Kind.PRIORITY:
                options[field] = whole_number(field, text, least=-MOST_PRIORITY, most=MOST_PRIORITY)
            case _:
                options[field] = text
    return action(takes_claimed=bool(asked.get("take_claimed")), **options)


def _utc_ms(field: str, text: str) -> int:
    try:
        return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)
    except ValueError:
        raise InvalidInput({field: ["must be a UTC time such as 2026-01-31T14:00"]}) from None


def names_of(asked: QueryDict, field: str) -> list[str]:
    """Return the group names in this field, perhaps none."""
    return [_name(f"{field}[{place}]", name) for place, name in enumerate(asked.getlist(field))]


def prefixes_of(asked: QueryDict, field: str) -> list[str]:
    """Return the folder prefixes in this field, perhaps none."""
    prefixes = names_of(asked, field)
    for place, prefix in enumerate(prefixes):
        if not is_prefix(prefix):
            raise InvalidInput({f"{field}[{place}]": ["must be the start of a group name and end with / or ."]})
    return prefixes


def text_of(asked: Mapping[str, str], field: str, longest: int) -> str:
    text = asked.get(field, "")
    if len(text) > longest:
        raise InvalidInput({field: [f"must be at most {longest} characters long, not {len(text)}"]})
    if "\0" in text or not is_utf8(text):
        raise InvalidInput({field: ["must not contain the NUL character or lone surrogates"]})
    return text


def whole_number(field: str, text: str, *, least: int = 0, most: int = INT64_MAX) -> int:
    if (number := whole(text, least, most)) is None:
        raise InvalidInput({field: [f"must be a whole number between {least} and {most}"]})
    return number


def _name(field: str, name: str) -> str:
    problems = [text for _, text in group_name(field, name)]
    if problems:
        raise InvalidInput({field: problems})
    return name


def _one_of(choices: type[Choice], field: str, text: str) -> Choice:
    try:
        return choices(text)
    except ValueError:
        raise InvalidInput({field: [f"must be one of {', '.join(choices)}"]}) from None
