"""The input, the writes and the results of a transaction: values."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import repeat
from operator import add

from taskstore.errors import TaskStoreError
from taskstore.types.tasks import Ending, Refusal, json_size

from ..conf import retention
from ..core import idempotency
from ..core.batches import Batch, Batches
from ..core.limits import Allowance, Limits
from ..core.operations import (
    Claim,
    Commit,
    Duplicate,
    Effect,
    HeldKey,
    Key,
    Operation,
    OtherKey,
    Prohibited,
    Supply,
    TaskRecord,
)
from ..core.tally import NOTHING, Delta, Work, deltas_of, text_of, work_in
from .claim_pools import NO_LIMITS
from .rows import (
    CANCELLED_COLUMNS,
    COLUMNS,
    DELTA_COLUMNS,
    ENDED_COLUMNS,
    ITEM_COLUMNS,
    ITEM_FIELDS,
    KEPT_ANSWER_COLUMNS,
    KEY_COLUMNS,
    LIMITED_COLUMNS,
    MINUTE_MS,
    Row,
    kept_of,
    numbered,
)

LET_GO_MS = 60_000  # How long data is kept after the end of its task, for whoever was told of the task before.


class Undecided(Enum):
    """Why an operation can't be decided yet because of other transactions. Nothing was changed."""

    # Members with what a client is told in the end.
    LOCKED = "the tasks are locked by another transaction: try again later"
    # The available tasks are locked, or being added, or the same key is being used.
    CONTENDED = "other transactions are using the same tasks or the same key: try again later"
    LIMITS = "a limit of the group is being changed: try again later"
    BUSY = "the database is busy with other transactions: try again later"
    CROWDED = "too many large responses are being sent: try again later"


# What comes of an operation: its new tasks, or the error to raise.
Decision = list[TaskRecord] | TaskStoreError | Undecided


@dataclass(slots=True)
class Done:
    """The result of each operation of a batch, the claimable tasks that they added, and counts of their changes."""

    decisions: Sequence[Decision]
    supply: Supply
    work: Work


@dataclass(slots=True)
class Seen:
    """The rows that a transaction read."""

    now_ms: int
    named: Mapping[int, TaskRecord]
    candidates: dict[str, list[TaskRecord]]  # By group, locked, the best first.
    commits: Sequence[int]  # A number for each operation, should it come to a commit.
    kept: Mapping[str, tuple[str, idempotency.Answer]]  # By key: the digest of the request, and its answer.
    locked: set[int] = field(default_factory=set)  # Named tasks that are there, but locked by others.
    exhausted: set[str] = field(default_factory=set)  # Groups that hold nothing to claim beside the candidates.
    earliest: dict[str, list[TaskRecord]] = field(default_factory=dict)  # By group, locked for queries, in their order.
    first: dict[str, list[TaskRecord]] = field(default_factory=dict)  # By group, one or none, for those that only read.
    ids: Sequence[int] = ()  # For drafts, drawn once all was locked.
    # Of the keys that adds name: those that are held or kept, the living tasks that hold them, by origin, and those
    # that another transaction is deciding about.
    keys: Mapping[Key, HeldKey] = field(default_factory=dict)
    holders: Mapping[int, TaskRecord] = field(default_factory=dict)
    contended: frozenset[Key] = frozenset()
    # Of limits: how often they were changed, what they are, and what they allow in the groups that matter; groups of
    # which another transaction is deciding.
    limits_version: int = 0
    limits: Limits = NO_LIMITS
    allowances: dict[str, Allowance] = field(default_factory=dict)
    values: set[Row] = field(default_factory=set)  # VALUE_COLUMNS: at which claims have to look again, and from when.
    looked_at: list[int] = field(default_factory=list)  # The rows of those at which they need not.
    undecided: set[str] = field(default_factory=set)
    # The batches that the operations concern, and those of which the locks are not to be had now, or not enough.
    batches: Batches | None = None
    locked_batches: set[int] = field(default_factory=set)
    contended_batches: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Written:
    """The rows that the effects of a batch come to."""

    removed: list[int] = field(default_factory=list)
    drafts: list[TaskRecord] = field(default_factory=list)
    ended: list[Row] = field(default_factory=list)  # ENDED_COLUMNS
    kept_payloads: dict[int, tuple[int, int]] = field(default_factory=dict)  # KEPT_PAYLOAD_COLUMNS, by the first one.
    kept: list[Row] = field(default_factory=list)  # KEPT_ANSWER_COLUMNS
    deltas: list[Row] = field(default_factory=list)  # DELTA_COLUMNS
    items: list[Row] = field(default_factory=list)  # ITEM_COLUMNS; see Dialect.note_key_groups.
    cancelled: list[Row] = field(default_factory=list)  # CANCELLED_COLUMNS
    taken: list[Row] = field(default_factory=list)  # KEY_COLUMNS
    freed: list[Row] = field(default_factory=list)  # FREED_COLUMNS
    limited: list[Row] = field(default_factory=list)  # LIMITED_COLUMNS
    unlimited: list[int] = field(default_factory=list)  # Of what was removed: what may be among the limited tasks.
    values: set[Row] = field(default_factory=set)  # As in Seen, and those of new tasks and ended leases.
    looked_at: list[int] = field(default_factory=list)  # As in Seen.
    slots: dict[str, int] = field(default_factory=dict)  # By group with a limit: how many leases have ended.
    next_in_ms: dict[str, int] = field(default_factory=dict)  # By group, until its rate allows the next claim.
    claims: list[Row] = field(default_factory=list)  # RECENT_COLUMNS
    ahead: list[Row] = field(default_factory=list)  # A time, and the row of claims of the future that count from then.
    forgotten: list[int] = field(default_factory=list)  # The rows of claims that matter no more.
    batches: list[Batch] = field(default_factory=list)  # That are new, or have changed.
    work: Work = NOTHING
    now_ms: int = 0
    so_far: Supply = field(default_factory=Supply)  # Of what was done before, in the same transaction.
    is_begun: bool = False  # Something was written before: it is to be committed.

    def __bool__(self) -> bool:
        rows = self.removed or self.drafts or self.kept or self.deltas or self.batches or self.ahead or self.looked_at
        return bool(rows or self.is_begun)

    def insertions(self, row_of: Callable[[TaskRecord], Row]) -> Iterator[tuple[str, Sequence[str], Sequence[Row]]]:
        """The tables that rows are added to, with their columns. `row_of`: makes the row of a task."""
        if self.drafts:
            yield "tasks_app_task", COLUMNS, [*map(row_of, self.drafts)]
            own = [(it.id, it.data, json_size(it.whole_data)) for it in self.drafts if it.payload == it.id]
            yield "tasks_app_payload", ("id", "data", "size"), own
        yield "tasks_app_endedtask", ENDED_COLUMNS, self.ended
        yield "tasks_app_keptanswer", KEPT_ANSWER_COLUMNS, self.kept
        yield "tasks_app_countdelta", DELTA_COLUMNS, self.deltas
        yield "tasks_app_bulkitem", ITEM_COLUMNS, self.items
        yield "tasks_app_cancelledtask", CANCELLED_COLUMNS, self.cancelled
        yield "tasks_app_limitedtask", LIMITED_COLUMNS, self.limited
        yield "tasks_app_uniquekey", KEY_COLUMNS, self.taken

    def keep_payload(self, payload: int, until_ms: int, *, gone: int) -> None:
        before_ms, was_gone = self.kept_payloads.get(payload, (0, 0))
        self.kept_payloads[payload] = max(until_ms, before_ms), max(gone, was_gone)

    def supply(self, now_ms: int) -> Supply:
        """What it adds that can be claimed, now or later."""
        available, next_in_ms = defaultdict[str, int](int, self.so_far.available), {**self.so_far.next_in_ms}
        for group, number in self.slots.items():
            available[group] += number
        for group, in_ms in self.next_in_ms.items():
            next_in_ms[group] = min(in_ms, next_in_ms.get(group, in_ms))
        for draft in self.drafts:
            in_ms = draft.available_at_ms - now_ms
            if in_ms <= 0:
                available[draft.group] += 1
            elif draft.group not in next_in_ms or in_ms < next_in_ms[draft.group]:
                next_in_ms[draft.group] = in_ms
        shared = frozenset([batch.id for batch in self.batches if not batch.is_exact])
        gone, shared = self.so_far.gone.union(self.removed), self.so_far.shared_batches | shared
        return Supply(available=available, next_in_ms=next_in_ms, gone=gone, shared_batches=shared)


def written_by(
    operations: Sequence[Operation],
    outcomes: Sequence[Effect | Refusal | Decision],
    seen: Seen,
    written: Written | None = None,
) -> Written:
    """`written`: what is still to be written of what was done before."""
    written = Written() if written is None else written
    deltas = deltas_of([outcome for outcome in outcomes if isinstance(outcome, Effect)], seen.now_ms)
    written.deltas += delta_rows(deltas, seen.now_ms)
    written.now_ms = seen.now_ms
    written.values, written.looked_at = seen.values, seen.looked_at
    ids = iter(seen.ids)
    commits = 0
    history = retention.kept()
    for operation, outcome, commit in zip(operations, outcomes, seen.commits, strict=True):
        first = len(written.drafts)
        if isinstance(outcome, Effect):
            first = len(written.drafts)
            _add_rows(outcome, commit, ids, seen.now_ms, written, history)
            if seen.limits:
                _note_limited(outcome, first, seen.limits, written)
            commits += isinstance(operation, Commit)
            if outcome.operator and outcome.operator.bulk:
                written.items += _items(outcome, outcome.operator.bulk, commit)
        if operation.key and operation.key.key not in seen.kept and _is_worth_keeping(operation, outcome):
            places = outcome.places if isinstance(outcome, Effect) else None
            is_truncated = isinstance(outcome, Effect) and outcome.is_truncated
            last = len(written.drafts) - (outcome.made if isinstance(outcome, Effect) else 0)
            told = outcome if isinstance(outcome, Refusal) else written.drafts[first:last]
            is_claim = isinstance(operation, Claim)
            text = idempotency.text_of(told, places, is_claim=is_claim, is_truncated=is_truncated)
            if isinstance(outcome, Effect) and not is_claim:
                holders = [place for place in places or () if isinstance(place, Duplicate)]
                for task in (*written.drafts[first:last], *holders):
                    if task.payload > 0:
                        written.keep_payload(task.payload, seen.now_ms + retention.key_ms(), gone=0)
            own_ids = ",".join([str(task.id) for task in written.drafts[first:last]])
            written.kept.append((operation.key.key, operation.key.digest, seen.now_ms, text, own_ids))
    for allowance in seen.allowances.values():
        _note_claims(allowance, written)
    written.batches = [batch for batch in seen.batches or () if batch.made or batch.is_changed or any(batch.more)]
    written.work = Work(*map(add, written.work, work_in(deltas.values(), commits)))
    return written


def _note_limited(effect: Effect, first: int, limits: Limits, written: Written) -> None:
    """Note which drafts of groups with limits are to be found by their values, or to be counted as leased."""
    for place, draft in enumerate(effect.drafts):
        limit = limits.of(draft.group)
        if limit and limit.keeps(leased=draft.leased):
            value = limit.value_of(draft.labels)
            task_id = written.drafts[first + place].id
            row = (task_id, draft.group, value, draft.priority, draft.available_at_ms, int(draft.leased))
            written.limited.append(row)
            if limit.by and not draft.leased:
                is_later = draft.available_at_ms > written.now_ms
                written.values.add((draft.group, value, draft.available_at_ms if is_later else 0))
    for task, _, number in effect.removals:
        if limit := limits.of(task.group):
            written.unlimited.append(task.id)
            successor = None if number is None else effect.drafts[number]
            value = limit.value_of(task.labels)
            is_held = successor and successor.leased and successor.group == task.group
            if task.leased and not (successor and is_held and limit.value_of(successor.labels) == value):
                written.slots[task.group] = written.slots.get(task.group, 0) + 1
                if limit.by:
                    written.values.add((task.group, value, 0))


def _note_claims(allowance: Allowance, written: Written) -> None:
    """Note the claims that count for the rate of a group."""
    limit, now_ms = allowance.limit, allowance.now_ms
    made = {value: number for value, number in allowance.claimed.items() if number > 0}
    if in_ms := allowance.soonest_ms():
        written.next_in_ms[allowance.group] = in_ms
    if limit.per_ms is not None:
        at_ms = limit.slice_of(now_ms)
        written.ahead += [(at_ms, row_id) for row_id in allowance.ahead]
        written.claims += [(allowance.group, value, at_ms, number, 0) for value, number in made.items()]
        written.forgotten += [row_id for value in made for row_id in allowance.forgotten(value)]


def delta_rows(deltas: Mapping[str, Delta], now_ms: int) -> list[Row]:
    return [
        (group, now_ms // MINUTE_MS, *delta.numbers, *map(text_of, delta.counters)) for group, delta in deltas.items()
    ]


def _is_worth_keeping(operation: Operation, outcome: Effect | Refusal | Decision) -> bool:
    if isinstance(operation, Claim) and isinstance(outcome, Effect):
        return bool(outcome.drafts)  # Who found nothing asks again because it hopes for something.
    return isinstance(outcome, Effect | Refusal) and not isinstance(outcome, OtherKey | Prohibited)


def _add_rows(effect: Effect, commit: int, ids: Iterator[int], now_ms: int, written: Written, history: str) -> None:
    operator, reason = (effect.operator.name, effect.operator.reason) if effect.operator else ("", "")
    first = len(written.drafts)
    if effect.drafts:
        written.drafts += map(numbered, effect.drafts, repeat(commit), ids)
        if len(written.drafts) < first + len(effect.drafts):
            raise RuntimeError("fewer ids were drawn than there are tasks")  # No id is ever invented.
    written.taken += [held._replace(origin=written.drafts[first + number].origin) for number, held in effect.taken]
    for task, ending, place in effect.removals:
        written.removed.append(task.id)
        if task.payload and (place is None or effect.drafts[place].payload != task.payload):
            written.keep_payload(task.payload, now_ms + LET_GO_MS, gone=1)
        if task.unique and (place is None or not effect.drafts[place].unique):
            written.freed.append((task.origin, task.id, ending.value, task.group))
        if ending is Ending.CANCELLED and task.leased:
            written.cancelled.append((task.id, task.owner, now_ms, task.group))
        if history == retention.OFF or (place is not None and history == retention.FINISHED):
            continue
        successor = None if place is None else written.drafts[first + place].id
        if successor is not None and successor <= task.id:
            raise RuntimeError(f"task {task.id} was locked after its successor's id {successor} had been drawn")
        # Not `value`, a property that takes as long as all else in this line.
        how = ending._value_
        written.ended.append((*kept_of(task), now_ms, commit, effect.owner, how, operator, reason, successor))


def _items(effect: Effect, operation: int, commit: int) -> Iterator[Row]:
    """What the effect of a commit of the bulk operation has done, and to what."""
    replacing = {removal.successor for removal in effect.removals}
    for task, _, successor in effect.removals:
        yield _item(task, operation, commit, keeps_data=successor is None)
    for place, draft in enumerate(effect.drafts[: len(effect.drafts) - effect.made]):
        if place not in replacing:  # It comes back: there was nothing that it replaces.
            yield _item(draft, operation, commit, keeps_data=False)


def _item(task: TaskRecord, operation: int, commit: int, *, keeps_data: bool) -> Row:
    kept = {name: getattr(task, name) for name in ITEM_FIELDS} | {"labels": json.dumps(dict(task.labels))}
    if not keeps_data:
        kept |= {"data": b"", "data_type": ""}
    return (operation, task.origin, task.id, "done", "", commit, *kept.values(), "")
