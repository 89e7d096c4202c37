"""What a page was asked, read strictly: what makes no sense raises InvalidInput that names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar

from django.contrib.auth.models import User
from django.http import QueryDict

from taskstore.errors import InvalidInput
from taskstore.types.bulk_actions import Kind, Option
from taskstore.types.tasks import State

from ..access.policy import Action, may, scope_of
from ..bulk import Action as BulkAction
from ..bulk import Selection, action_named
from ..core.validation import INT64_MAX, MOST_PRIORITY, group_name, is_utf8
from ..reading.files import Format
from ..reading.listing import END, Cursor
from ..reading.rates import Span
from ..reading.search import grammar
from ..reading.search.grammar import Key, Label, Term
from .name_tree import is_prefix, prefix_above
from .payload import Form

Choice = TypeVar("Choice", bound=StrEnum)

LONGEST_FILTER = 255
MOST_SELECTED = 500  # One by one: their ids have to fit an address.


class Notices(StrEnum):
    """How many of the things that need attention are to be shown."""

    WORST = "worst"
    ALL = "all"


class Order(StrEnum):
    """What the groups are sorted by."""

    NAME = "name"
    READY = "ready"
    OLDEST = "oldest"
    CLAIMED = "claimed"
    EXPIRED = "expired"
    SCHEDULED = "scheduled"
    FAILED = "failed"
    IN = "in"
    OUT = "out"


class View(StrEnum):
    """How the groups are shown."""

    FLAT = "flat"
    TREE = "tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """How somebody wants to see the groups."""

    view: View
    order: Order
    is_downwards: bool
    searched: str  # In the names; empty: all.
    opened: Sequence[str]  # The prefixes of folders that stand open, and with each all that it lies in.
    page: int


def group_of(asked: QueryDict) -> str:
    return _name("name", asked.get("name", ""))


def state_of(asked: QueryDict) -> State | None:
    """The state, or None when all are meant."""
    return _one_of(State, "state", text) if (text := asked.get("state")) else None


def label_of(asked: QueryDict) -> Label | None:
    """The label that a list is to be narrowed by, or None when it is not."""
    return grammar.label(text, "label") if (text := asked.get("label", "").strip()) else None


def order_of(asked: QueryDict) -> tuple[Order, bool]:
    """What to sort by, and whether downwards (a minus before it). The most ready first, if nothing is said."""
    text = asked.get("sort") or "-ready"
    return _one_of(Order, "sort", text.removeprefix("-")), text.startswith("-")


def arrangement_of(asked: QueryDict) -> Arrangement:
    order, is_downwards = order_of(asked)
    return Arrangement(
        view=_one_of(View, "view", asked.get("view") or View.FLAT),
        order=order,
        is_downwards=is_downwards,
        searched=filter_of(asked),
        opened=_opened(prefixes_of(asked, "open"), prefixes_of(asked, "close")),
        page=page_of(asked),
    )


def form_of(asked: QueryDict) -> Form | None:
    """How to look at data; None: as it suits the data."""
    return _one_of(Form, "as", text) if (text := asked.get("as")) else None


def format_of(asked: QueryDict) -> Format:
    """What to write a list as."""
    return _one_of(Format, "format", asked.get("format", ""))


def notices_of(asked: QueryDict) -> Notices:
    return _one_of(Notices, "notices", asked.get("notices") or Notices.WORST)


def span_of(asked: QueryDict) -> Span:
    """How far back to look; an hour, if nothing is said."""
    return _one_of(Span, "span", asked.get("span") or Span.HOUR)


def filter_of(asked: QueryDict) -> str:
    return text_of(asked, "filter", LONGEST_FILTER)


def page_of(asked: QueryDict) -> int:
    return whole_number("page", asked.get("page") or "1", least=1)


def places_of(asked: QueryDict) -> tuple[Cursor | None, Cursor | None]:
    """The places after which, or before which, a list goes on."""
    after, before = asked.get("after"), asked.get("before")
    return (
        Cursor.read(after, "after") if after else None,
        END if before == "end" else Cursor.read(before, "before") if before else None,
    )


def selection_of(asked: QueryDict, user: User) -> Selection:
    """The tasks with the ids `id`; with `all` those of the group `name`, in its state, or those that meet `q`."""
    group = group_of(asked) if "name" in asked else ""
    bound = whole_number("bound", asked.get("bound") or "0")
    as_of_ms = whole_number("as_of", asked.get("as_of") or "0")
    if not asked.get("all"):
        return Selection(group=group, ids=ids_of(asked), bound=bound, as_of_ms=as_of_ms, scope=scope_of(user))
    q = asked.get("q", "")
    if not terms_of(q, user) and not group:
        raise InvalidInput({"q": ["must name a search or a group: the console never changes all tasks of the store"]})
    return Selection(group=group, state=state_of(asked), q=q, bound=bound, as_of_ms=as_of_ms, scope=scope_of(user))


def terms_of(q: str, user: User) -> list[Term]:
    """The terms of a search. Raises InvalidInput also when it looks into data that the person may not see."""
    terms = grammar.parse(q)
    if any(term.key is Key.DATA for term in terms) and not may(user, Action.SEE_PAYLOADS):
        raise InvalidInput({"q": ["data: your role does not allow you to see or search task data"]})
    return terms


def ids_of(asked: QueryDict) -> tuple[int, ...]:
    """The ids of the selected tasks, at least one."""
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
    options = {option.name: _option_in(asked, option) for option in action.words.options}
    return action(takes_claimed=bool(asked.get("take_claimed")), **options)


def _option_in(asked: QueryDict, option: Option) -> str | int | bool | None:
    name = option.name
    if option.default is None and not asked.get(f"set_{name}"):
        return None
    match option.kind:
        case Kind.FLAG:
            return bool(asked.get(name))
        case Kind.TIME:
            return _moment_in(asked, name)
        case Kind.MINUTES:
            return whole_number(name, asked.get(name) or "0")
        case Kind.PRIORITY:
            return whole_number(name, asked.get(name, ""), least=-MOST_PRIORITY, most=MOST_PRIORITY)
    return asked.get(name, "")


def _moment_in(asked: QueryDict, field: str) -> int:
    """The UTC time that a field of the browser holds, in milliseconds; 0 when it is empty."""
    text = asked.get(field, "")
    if not text:
        return 0
    try:
        return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)
    except ValueError:
        raise InvalidInput({field: ["must be a UTC time such as 2026-01-31T14:00"]}) from None


def names_of(asked: QueryDict, field: str) -> list[str]:
    """The names of groups in this field; there may be none."""
    return [_name(f"{field}[{place}]", name) for place, name in enumerate(asked.getlist(field))]


def prefixes_of(asked: QueryDict, field: str) -> list[str]:
    """The beginnings of names that are folders' in this field; there may be none."""
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
    # `int` alone would take "1_000", " 7" and the digits of other scripts.
    digits = text.removeprefix("-") if least < 0 else text
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 20
    if not is_number or not least <= int(text) <= most:
        raise InvalidInput({field: [f"must be a whole number between {least} and {most}"]})
    return int(text)


def _opened(opened: Sequence[str], closed: Sequence[str]) -> list[str]:
    """What stands open when some are closed: nothing that lies in one of these, but what they lie in."""
    left = [*opened, *map(prefix_above, closed)]
    return [prefix for prefix in dict.fromkeys(left) if prefix and not prefix.startswith(tuple(closed))]


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
