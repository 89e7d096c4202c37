"""Which tasks are meant, bound to the moment at which somebody saw how many they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from django.db import connections

from taskstore.errors import InvalidInput
from taskstore.types.tasks import FAILED_FROM, State

from ..core.actors import Actor
from ..core.operations import EVERY_GROUP, GroupScope
from ..database import Dialect, dialect_of
from ..database.time_limits import TookTooLong, at_most
from ..models import BulkOperation, Task
from ..reading.listing import Cursor
from ..reading.search.conditions import (
    EVERYTHING,
    IN_STATE,
    Condition,
    condition_of,
    every,
    first_added_up_to,
    one_of,
    within,
)
from ..reading.search.finding import Walk
from ..reading.search.grammar import Key, Term, parse
from .actions import Action, Requeue, target_of

SAMPLES = 3
COUNTING_S = 10.0  # Somebody waits for the number.

SAY_WHICH = "must select tasks, for example group:mail state:failed; group:* selects all tasks of the store"

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
        fields = {name: value for name, value in kept.items() if name != "no_commands_because"}
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
        because = self.scope.no_commands_because
        return {**asdict(self), "scope": self.scope.patterns, "no_commands_because": because}

    @property
    def in_words(self) -> str:
        if self.ids is not None:
            return f"{len(self.ids)} selected {'task' if len(self.ids) == 1 else 'tasks'}"
        which = f"all {self.state.value} tasks" if self.state else "all tasks"
        return f"{which} that match {self.q.strip()}" if self.q.strip() else which

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

    def walk(self, place: Cursor | None, limit: int, also: Condition = EVERYTHING) -> Walk:
        """Through the tasks that are meant, beyond the place; `also`: what they have to meet as well."""
        beside = every([also, *self._beside_the_terms()])
        return Walk(terms=self.terms, scope=self.scope, place=place, limit=limit, also=beside, now_ms=self.as_of_ms)

    def condition(self, now_ms: int, dialect: Dialect) -> Condition:
        asked = [condition_of(term, self.as_of_ms or now_ms, dialect) for term in self.terms]
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


def began_by(operation: BulkOperation) -> Actor:
    """Return who began the operation, with the groups that they might touch then."""
    return Actor(operation.by, scope_in(operation.selection), reason=operation.reason)


def scope_in(kept: Mapping[str, Any]) -> GroupScope:
    """Return the scope in what `Selection.as_json` gave."""
    patterns = kept.get("scope")
    return GroupScope(None if patterns is None else tuple(patterns), kept.get("no_commands_because", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A group that a requeue puts tasks into."""

    group: str
    count: int  # Tasks, without those that are claimed.
    claimed: int = 0  # So many more, when claimed ones are taken too.
    moved: int = 0  # Of all of these, those that are in another group now.


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a selection holds at a moment, and the selection bound to that moment."""

    selection: Selection
    count: int
    by_state: Mapping[State, int]  # Ready, claimed, expired, scheduled: they add up to count.
    ready_already: int  # Ready, not failed, and where they belong: a requeue will skip them.
    groups: Sequence[str]  # Of those that the tasks are in the first and the last by name, or the only one.
    samples: Sequence[int] = field(default_factory=list)  # A few ids.
    targets: Sequence[Target] = ()  # Requeue: where the tasks go, the most first.
    dead_letters: int = 0  # Requeue: those that go back to where they failed.
    ended: int = 0  # Requeue: commands that have ended, which it will skip; without those that are claimed.

    @property
    def claimed(self) -> int:
        return self.by_state[State.CLAIMED]

    @property
    def group(self) -> str:
        """The one that all are in; empty: they are in several, or there is none."""
        if self.selection.group:
            return self.selection.group
        return self.groups[0] if len(self.groups) == 1 else ""


def preview(selection: Selection, action: Action | None = None) -> Preview:
    """Look at what the selection holds now, or at what is left of it when it is bound already.

    With an action that makes tasks available also where they would be.
    Raises InvalidInput about `q` when it makes no sense, or when it takes too long to count what meets it.
    """
    using = Task.objects.db
    now_ms = Task.objects.now_ms()
    bound = selection.bound or Task.objects.newest_id()
    selection = replace(selection, bound=bound, as_of_ms=selection.as_of_ms or now_ms)
    try:
        with at_most(COUNTING_S, using=using):
            return _preview(selection, now_ms, using, action)
    except TookTooLong:
        raise InvalidInput(
            {"q": [f"matches take longer than {COUNTING_S:.0f} s to count: narrow the search by group: or state:"]}
        ) from None


def _preview(selection: Selection, now_ms: int, using: str, action: Action | None) -> Preview:
    here = isinstance(action, Requeue) and action.here
    dialect = dialect_of(using)
    found = one_of(_ids_of(selection)) if selection.looks_into_data else selection.condition(now_ms, dialect)
    counted = [f"count(*) FILTER (WHERE {IN_STATE[state].format(now_ms=now_ms)})" for state in STATES]
    failed_from = dialect.label(FAILED_FROM)
    is_ready_already = READY_ALREADY.format(now_ms=now_ms) + ("" if here else f" AND {failed_from} = ''")
    ready_already = f"count(*) FILTER (WHERE {is_ready_already})"
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
    found_targets = _Targets(here=here)
    if action and action.makes_available:
        is_claimed = IN_STATE[State.CLAIMED].format(now_ms=now_ms)
        for row in _rows(
            f"""
            SELECT "group", failed_from, count(*) FILTER (WHERE NOT is_claimed), count(*) FILTER (WHERE is_claimed)
            FROM (
                SELECT "group", {failed_from} AS failed_from, {is_claimed} AS is_claimed
                FROM tasks_app_task AS found
                WHERE {found.sql} AND NOT ({is_ready_already})
            ) AS to_requeue
            GROUP BY "group", failed_from
            """,  # noqa: S608 - all words are ours
            found,
            using,
        ):
            found_targets.add(*row)
    return Preview(
        selection=selection,
        count=sum(numbers),
        by_state=dict(zip(STATES, numbers, strict=True)),
        ready_already=ready,
        groups=sorted({first, last} - {None}),
        samples=sorted(task_id for (task_id,) in samples),
        targets=found_targets.sorted,
        dead_letters=found_targets.dead_letters,
        ended=found_targets.ended,
    )


class _Targets:
    """Where a requeue puts tasks, added up group by group."""

    def __init__(self, *, here: bool) -> None:
        self._here = here
        self._found: dict[str, Target] = {}
        self.dead_letters = self.ended = 0

    def add(self, group: str, failed_from: str, count: int, claimed: int) -> None:
        """So many tasks of the group that failed in this one; empty: that are no dead letters."""
        to = target_of(group, failed_from, here=self._here)
        if to is None:
            self.ended += count
            return
        all_of_them = count + claimed
        before = self._found.get(to, Target(group=to, count=0))
        self._found[to] = Target(
            group=to,
            count=before.count + count,
            claimed=before.claimed + claimed,
            moved=before.moved + (all_of_them if to != group else 0),
        )
        self.dead_letters += all_of_them if to == failed_from != group else 0

    @property
    def sorted(self) -> list[Target]:
        """Those with the most tasks first."""
        return sorted(self._found.values(), key=lambda target: (-target.count, -target.claimed, target.group))


def _ids_of(selection: Selection) -> list[int]:
    walk = selection.walk(None, limit=10**9)
    while not walk.is_over:
        walk.go_on()
    return [place.id for place in walk.found]


def _rows(sql: str, condition: Condition, using: str) -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, condition.parameters)
        return list(cursor.fetchall())
