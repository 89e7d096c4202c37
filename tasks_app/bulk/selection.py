"""The tasks of a bulk operation, bound to the moment of their preview."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from django.db import connections
from django.db.models import Sum

from taskstore.errors import InvalidInput
from taskstore.types.bulk import ClosedBatch
from taskstore.types.command_record import COUNT_LABEL
from taskstore.types.tasks import FAILED_FROM, Standing, State, standing_of

from ..core.actors import Actor
from ..core.batches import weight_in
from ..core.operations import EVERY_GROUP, GroupScope
from ..database import Dialect, dialect_of
from ..database.time_limits import TookTooLong, at_most
from ..models import Batch, BatchCount, BulkOperation, Task
from ..reading.pages import Cursor
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
from ..reading.search.finding import Scan
from ..reading.search.grammar import Key, Term, parse
from .actions import Action, Requeue, target_of

SAMPLES = 3
MOST_BATCHES = 1_000  # Of which a preview says whether they close.
COUNTING_S = 10.0  # A person waits for the number.


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The tasks with these ids, or all of the group, in the state, that match the search `q`.

    `bound` is the largest id at the preview: tasks first added later are left out. `as_of_ms` is the time of the
    preview, which separates ready from scheduled tasks. Both are 0 before the preview.
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
        """Return the selection that `as_json` described."""
        fields = {name: value for name, value in kept.items() if name not in ("no_commands_because", "holder")}
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
        because, holder = self.scope.no_commands_because, self.scope.holder
        return {**asdict(self), "scope": self.scope.patterns, "no_commands_because": because, "holder": holder}

    @property
    def in_words(self) -> str:
        if self.ids is not None:
            return f"{len(self.ids)} selected {'task' if len(self.ids) == 1 else 'tasks'}"
        which = f"all {self.state.value} tasks" if self.state else "all tasks"
        return f"{which} that match {self.q.strip()}" if self.q.strip() else which

    @cached_property
    def terms(self) -> list[Term]:
        """Return the terms of the search, the group and the state. Raises InvalidInput about `q`."""
        in_group = [Term(key=Key.GROUP, value=self.group)] if self.group and not self._is_starred else []
        in_state = [Term(key=Key.STATE, value=self.state)] if self.state else []
        return [*parse(self.q), *in_group, *in_state]

    @property
    def is_whole_group(self) -> bool:
        others = [term for term in self.terms if term.key is not Key.GROUP or term.is_excluded]
        return self.ids is None and not others

    def scan(self, place: Cursor | None, limit: int, also: Condition = EVERYTHING) -> Scan:
        """Return a scan of the selected tasks beyond the place that meet the condition `also`."""
        conditions = every([also, *self._conditions()])
        return Scan(terms=self.terms, scope=self.scope, place=place, limit=limit, also=conditions, now_ms=self.as_of_ms)

    def condition(self, now_ms: int, dialect: Dialect) -> Condition:
        asked = [condition_of(term, self.as_of_ms or now_ms, dialect) for term in self.terms]
        return every([*asked, within(self.scope), *self._conditions()])

    def _conditions(self) -> Iterator[Condition]:
        """Yield the conditions that are not terms."""
        if self.group and self._is_starred:
            yield Condition('"group" = %s', (self.group,))
        if self.bound:
            yield first_added_up_to(self.bound)
        if self.ids is not None:
            yield one_of(self.ids)

    @property
    def _is_starred(self) -> bool:
        """Return whether a search term would treat the group's name as a prefix."""
        return self.group.endswith("*")

    @property
    def looks_into_data(self) -> bool:
        """Return whether the terms need parsed data, which the database can't match."""
        return any(term.key is Key.DATA and term.name for term in self.terms)


def began_by(operation: BulkOperation) -> Actor:
    """Return the actor who started the operation, with the scope at its start."""
    return Actor(operation.by, scope_in(operation.selection), reason=operation.reason)


def scope_in(kept: Mapping[str, Any]) -> GroupScope:
    """Return the scope from the JSON of a selection."""
    patterns = kept.get("scope")
    because = kept.get("no_commands_because", "")
    return GroupScope(None if patterns is None else tuple(patterns), because, holder=kept.get("holder", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A group that a requeue puts tasks into."""

    group: str
    count: int  # Tasks that are not claimed.
    claimed: int = 0  # Claimed tasks in addition.
    moved: int = 0  # Of all of these, the tasks that are in another group now.


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The tasks of a selection at a moment, in numbers, and the selection bound to that moment."""

    selection: Selection
    count: int
    by_state: Mapping[State, int]  # They add up to count.
    groups: Sequence[str]  # The first and last of their groups by name, or the only one.
    samples: Sequence[int] = field(default_factory=list)  # A few ids.
    targets: Sequence[Target] = ()  # Of a requeue, the largest first.
    dead_letters: int = 0  # Tasks that a requeue would return to the group in which they failed.
    ended: int = 0  # Ended commands that are not claimed, which a requeue would skip.
    closes: Sequence[ClosedBatch] = ()  # The batches that close when all these tasks are deleted.

    @property
    def claimed(self) -> int:
        return self.by_state[State.CLAIMED]

    @property
    def ready_already(self) -> int:
        """Return the number of tasks that a requeue would skip."""
        return self.by_state[State.READY]

    @property
    def group(self) -> str:
        """Return the only group of the tasks; empty when there are several or none."""
        if self.selection.group:
            return self.selection.group
        return self.groups[0] if len(self.groups) == 1 else ""


def preview(selection: Selection, action: Action | None = None) -> Preview:
    """Count the tasks of the selection; of a bound selection, those that are left.

    With an action that makes tasks available, the preview has their target groups, too.
    Raises InvalidInput about `q` when it is invalid, or when counting takes too long.
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
    found = selection.condition(now_ms, dialect)
    if selection.looks_into_data:
        scan = selection.scan(None, limit=10**9)
        while not scan.is_over:
            scan.step()
        found = one_of([place.id for place in scan.found])
    counted = [f"count(*) FILTER (WHERE {IN_STATE[state].format(now_ms=now_ms)})" for state in State]
    failed_from = dialect.label(FAILED_FROM)
    [[first, last, *numbers]] = _rows(
        f'SELECT min("group"), max("group"), {", ".join(counted)}'  # noqa: S608 - all words are ours
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
                WHERE {found.sql} AND NOT ({IN_STATE[State.READY].format(now_ms=now_ms)})
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
        by_state=dict(zip(State, numbers, strict=True)),
        groups=sorted({first, last} - {None}),
        samples=sorted(task_id for (task_id,) in samples),
        targets=found_targets.sorted,
        dead_letters=found_targets.dead_letters,
        ended=found_targets.ended,
        closes=_closing(found, selection.scope, dialect) if action and action.ends_tasks else (),
    )


def _closing(found: Condition, scope: GroupScope, dialect: Dialect) -> list[ClosedBatch]:
    """Return the batches that close without these tasks, and those that can't succeed any more."""
    waits_for: defaultdict[int, Counter[Standing]] = defaultdict(Counter)
    for batch, group, failed_from, commands, number in _rows(
        f"""
        SELECT batch, "group", failed_from, commands, count(*) FROM (
            SELECT batch, "group", {dialect.label(FAILED_FROM)} AS failed_from, {dialect.label(COUNT_LABEL)} AS commands
            FROM tasks_app_task AS found WHERE {found.sql} AND batch <> 0
        ) AS members
        GROUP BY batch, "group", failed_from, commands
        """,  # noqa: S608 - all words are ours
        found,
        dialect.using,
    ):
        standing = standing_of(group, "", {FAILED_FROM: failed_from} if failed_from else {})
        waits_for[batch][standing] += number * weight_in(group, commands or "")
    waiting = Batch.objects.using(dialect.using).within(scope).counted().still_open().filter(refuses=0)
    found_batches: dict[int, Batch] = {}
    ids = set(sorted(waits_for)[:MOST_BATCHES])
    while ids:  # With those around them.
        found_batches |= {batch.pk: batch for batch in waiting.filter(pk__in=ids)}
        ids = {batch.parent for batch in found_batches.values()} - found_batches.keys() - {0} - ids
    counts = BatchCount.objects.using(dialect.using).filter(batch__in=found_batches).values("batch")
    sums = counts.annotate(is_open=Sum("open"), has_failed=Sum("failed"), is_gone=Sum("gone"))
    own = {row["batch"]: row for row in sums}
    children: Counter[int] = Counter()  # That close, by the batch around them.
    failing: set[int] = set()  # Batches within which one fails.
    closing: list[ClosedBatch] = []
    for batch in sorted(found_batches.values(), key=lambda batch: -batch.pk):
        row, these = own.get(batch.pk, {"is_open": 0, "has_failed": 0, "is_gone": 0}), waits_for[batch.pk]
        others = row["is_open"] - these[Standing.OPEN], batch.children - children[batch.pk]
        failed = 0 if batch.failed_ends else row["has_failed"] - these[Standing.FAILED]
        waits = bool(any(others) or failed or batch.hold)
        loses = not batch.failed_ends and (these[Standing.OPEN] or these[Standing.FAILED] or batch.pk in failing)
        if (batch.failed_ends and batch.steps) or (waits and (not loses or row["is_gone"] or batch.failed_children)):
            continue
        children[batch.parent] += not waits
        failing |= {batch.parent} if loses else set()
        state = "succeeded" if batch.failed_ends else "failed"
        closing.append(ClosedBatch(id=batch.pk, state=state, planned=batch.told().planned, waits=waits))
    return closing[::-1]


class _Targets:
    """The target groups of a requeue, added up."""

    def __init__(self, *, here: bool) -> None:
        self._here = here
        self._found: dict[str, Target] = {}
        self.dead_letters = self.ended = 0

    def add(self, group: str, failed_from: str, count: int, claimed: int) -> None:
        """Add so many tasks of the group; `failed_from` is empty unless they are dead letters."""
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
        """Return the targets, those with the most tasks first."""
        return sorted(self._found.values(), key=lambda target: (-target.count, -target.claimed, target.group))


def _rows(sql: str, condition: Condition, using: str) -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, condition.parameters)
        return list(cursor.fetchall())
