"""Which tasks are meant, bound to the moment at which somebody saw how many they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from django.db import connections

from ..errors import InvalidInput
from ..listing import Place
from ..models import Task
from ..operations import EVERY_GROUP, GroupScope, State
from ..search.conditions import (
    EVERYTHING,
    IN_STATE,
    Condition,
    condition_of,
    every,
    first_added_up_to,
    one_of,
    within,
)
from ..search.finding import Walk
from ..search.grammar import Key, Term, parse
from ..time_limits import TookTooLong, at_most

SAMPLES = 3
COUNTING_S = 10.0  # Somebody waits for the number.

SAY_WHICH = "say which tasks are meant, for example group:mail state:failed; group:* means all tasks of the store"

READY_ALREADY = f"{IN_STATE[State.READY]} AND error = ''"
STATES = (State.READY, State.CLAIMED, State.EXPIRED, State.SCHEDULED)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The tasks with these ids, or all of the group, in the state, that meet the terms of the search `q`.

    `bound` is the largest id there was at the preview: chains that began later are not touched. Ready and
    scheduled are told apart by the time of the preview, `as_of_ms`. 0 and 0: not previewed yet.
    """

    group: str = ""  # Empty: any.
    state: State | None = None
    q: str = ""
    ids: tuple[int, ...] | None = None
    bound: int = 0
    as_of_ms: int = 0
    scope: GroupScope = EVERY_GROUP

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Self:
        """From what `as_json` gave."""
        fields = {name: value for name, value in kept.items() if name != "held"}
        return cls(
            **{
                **fields,
                "state": State(kept["state"]) if kept["state"] else None,
                "ids": None if kept["ids"] is None else tuple(kept["ids"]),
                "scope": scope_in(kept),
            }
        )

    @property
    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "scope": self.scope.patterns, "held": self.scope.held}

    @property
    def in_words(self) -> str:
        if self.ids is not None:
            return f"{len(self.ids)} selected {'task' if len(self.ids) == 1 else 'tasks'}"
        which = f"all {self.state.value} tasks" if self.state else "all tasks"
        return f"{which} that meet {self.q.strip()}" if self.q.strip() else which

    @cached_property
    def terms(self) -> list[Term]:
        """Raises InvalidInput about `q`."""
        in_group = [Term(key=Key.GROUP, value=self.group)] if self.group and not self._is_starred else []
        in_state = [Term(key=Key.STATE, value=self.state)] if self.state else []
        return [*parse(self.q), *in_group, *in_state]

    @property
    def is_whole_group(self) -> bool:
        others = [term for term in self.terms if term.key is not Key.GROUP or term.is_excluded]
        return self.ids is None and not others

    def walk(self, place: Place | None, limit: int, also: Condition = EVERYTHING) -> Walk:
        """Through the tasks that are meant, beyond the place; `also`: what they have to meet as well."""
        beside = every([also, *self._beside_the_terms()])
        return Walk(terms=self.terms, scope=self.scope, place=place, limit=limit, also=beside, now_ms=self.as_of_ms)

    def condition(self, now_ms: int, vendor: str) -> Condition:
        asked = [condition_of(term, self.as_of_ms or now_ms, vendor) for term in self.terms]
        return every([*asked, within(self.scope), *self._beside_the_terms()])

    def _beside_the_terms(self) -> Iterator[Condition]:
        if self.group and self._is_starred:
            yield Condition('"group" = %s', (self.group,))
        if self.bound:
            yield first_added_up_to(self.bound)
        if self.ids is not None:
            yield one_of(self.ids)

    @property
    def _is_starred(self) -> bool:
        """Whether a term would take the group's name for the beginning of names."""
        return self.group.endswith("*")

    @property
    def looks_into_data(self) -> bool:
        """Whether the database alone can't say what meets the terms."""
        return any(term.key is Key.DATA and term.name for term in self.terms)


def scope_in(kept: Mapping[str, Any]) -> GroupScope:
    """Of what `Selection.as_json` gave: whose right the operation has."""
    patterns = kept.get("scope")
    return GroupScope(None if patterns is None else tuple(patterns), held=kept.get("held", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a selection holds at a moment, and the selection bound to that moment."""

    selection: Selection
    count: int
    by_state: Mapping[State, int]  # Ready, claimed, expired, scheduled: they add up to count.
    ready_already: int  # Ready and not failed: a requeue will skip them.
    groups: Sequence[str]  # Of those that the tasks are in the first and the last by name, or the only one.
    samples: Sequence[int] = field(default_factory=list)  # A few ids.

    @property
    def claimed(self) -> int:
        return self.by_state[State.CLAIMED]

    @property
    def group(self) -> str:
        """The one that all are in; empty: they are in several, or there is none."""
        if self.selection.group:
            return self.selection.group
        return self.groups[0] if len(self.groups) == 1 else ""


def preview(selection: Selection) -> Preview:
    """Look at what the selection holds now, or at what is left of it when it is bound already.

    Raises InvalidInput about `q` when it makes no sense, or when it takes too long to count what meets it.
    """
    using = Task.objects.db
    now_ms = Task.objects.now_ms()
    bound = selection.bound or Task.objects.newest_id()
    selection = replace(selection, bound=bound, as_of_ms=selection.as_of_ms or now_ms)
    try:
        with at_most(COUNTING_S, using=using):
            return _preview(selection, now_ms, using)
    except TookTooLong:
        raise InvalidInput(
            {"q": [f"counting what meets it takes longer than {COUNTING_S:.0f} s: narrow it by group: or state:"]}
        ) from None


def _preview(selection: Selection, now_ms: int, using: str) -> Preview:
    vendor = connections[using].vendor
    found = one_of(_ids_of(selection)) if selection.looks_into_data else selection.condition(now_ms, vendor)
    counted = [f"count(*) FILTER (WHERE {IN_STATE[state].format(now_ms=now_ms)})" for state in STATES]
    ready_already = f"count(*) FILTER (WHERE {READY_ALREADY.format(now_ms=now_ms)})"
    [[ready, first, last, *numbers]] = _rows(
        f'SELECT {ready_already}, min("group"), max("group"), {", ".join(counted)}'  # noqa: S608 - all words are ours
        f" FROM tasks_app_task AS found WHERE {found.sql}",
        found,
        using,
    )
    samples = _rows(
        f"SELECT id FROM tasks_app_task AS found WHERE {found.sql} LIMIT {SAMPLES}",  # noqa: S608 - all words are ours
        found,
        using,
    )
    return Preview(
        selection=selection,
        count=sum(numbers),
        by_state=dict(zip(STATES, numbers, strict=True)),
        ready_already=ready,
        groups=sorted({first, last} - {None}),
        samples=sorted(task_id for (task_id,) in samples),
    )


def _ids_of(selection: Selection) -> list[int]:
    walk = selection.walk(None, limit=10**9)
    while not walk.is_over:
        walk.go_on()
    return [place.id for place in walk.found]


def _rows(sql: str, condition: Condition, using: str) -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, condition.parameters)
        return list(cursor.fetchall())
