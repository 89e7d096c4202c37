"""Ways through the tasks: the index along which a search walks, so that it can say how far it looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..listing import Place
from ..operations import State
from .conditions import EVERYTHING, Condition, condition_of, every, one_of
from .grammar import Key, Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Within a group the longest available come first, as its page has them; else the newest."""

    condition: Condition  # What lies on it.
    is_by_time: bool

    @property
    def order(self) -> str:
        return "available_at_ms, id" if self.is_by_time else "id DESC"

    def beyond(self, place: Place | None) -> Condition:
        """What comes after the place; None: everything."""
        if place is None:
            return EVERYTHING
        if self.is_by_time:
            return Condition("(available_at_ms, id) > (%s, %s)", (place.available_at_ms, place.id))
        return Condition("id < %s", (place.id,))

    def through(self, ids: Sequence[int]) -> Way:
        """In the same order, past these tasks only."""
        return replace(self, condition=one_of(ids))

    def up_to(self, place: Place | None) -> Condition:
        """What comes before the place, and what is there; None: everything."""
        if place is None:
            return EVERYTHING
        if self.is_by_time:
            return Condition("(available_at_ms, id) <= (%s, %s)", (place.available_at_ms, place.id))
        return Condition("id >= %s", (place.id,))


def way_to(terms: Sequence[Term], now_ms: int, vendor: str) -> Way:
    """The shortest one to what meets the terms: an id, failed tasks, a group, its future, or everything."""
    asked = [term for term in terms if not term.is_excluded]
    to_ids = [condition_of(term, now_ms, vendor) for term in asked if term.key is Key.ID]
    to_groups = [condition_of(term, now_ms, vendor) for term in asked if _is_one_group(term)]
    to_failed = [Condition("error <> ''")] if any(map(_is_failed, asked)) else []
    is_by_time = bool(to_groups) and not (to_ids or to_failed)
    lies_ahead = is_by_time and any(term.value in (State.CLAIMED, State.SCHEDULED) for term in asked)
    to_future = [Condition("available_at_ms > %s", (now_ms,))] if lies_ahead else []
    return Way(condition=every([*to_ids, *to_groups, *to_failed, *to_future]), is_by_time=is_by_time)


def _is_one_group(term: Term) -> bool:
    return term.key is Key.GROUP and not str(term.value).endswith("*")


def _is_failed(term: Term) -> bool:
    return term.key is Key.ERROR or term.value is State.FAILED
