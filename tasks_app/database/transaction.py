"""One transaction of the store, from its first look to its last write, as steps that say which statements to send."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import cast

from django.conf import settings

from taskstore.errors import CommitRefused, Forbidden, InvalidInput, KeyReused, StoreBusy
from taskstore.types.schedules import SCHEDULES
from taskstore.types.tasks import Refusal, json_size

from ..core.idempotency import Claimed
from ..core.limits import values_to_lease
from ..core.operations import (
    Apart,
    Claim,
    Commit,
    Effect,
    Operation,
    OtherKey,
    Prohibited,
    PutOff,
    Query,
    TaskRecord,
    as_seen,
)
from ..core.room import LARGE_BYTES, Place, Told, answer_size, room
from ..core.rules import World, decide, is_held
from . import batches, limits
from .claim_pools import changed_ids, named_keys
from .dialect import PATIENCE_S, Dialect
from .new_groups import refuse_too_many
from .rows import PAYLOAD_BYTES, Steps, amid, record_of, together
from .transaction_values import Decision, Done, Seen, Undecided, Written, written_by

LOOK_EVERY_S = 0.02
MOST_BYTES, MOST_BYTES_TOGETHER = 64 * 2**20, 192 * 2**20


def most_bytes() -> int:
    """How many bytes an answer may have."""
    return int(getattr(settings, "TASKSTORE_MAX_ANSWER_BYTES", MOST_BYTES))


def place_for(size: int) -> Place | None:
    """Take a place for an answer of so many bytes; None when there is no room now. A small one takes nothing."""
    taken = min(size, most_bytes()) if size > LARGE_BYTES else 0
    return room.take(taken, int(getattr(settings, "TASKSTORE_MAX_ANSWERS_BYTES", MOST_BYTES_TOGETHER)))


def waited_place(size: int) -> Place:
    """Take a place for an answer, waiting for one in a thread. Raises StoreBusy when there is none for too long."""
    until_s = time.monotonic() + PATIENCE_S
    while (place := place_for(size)) is None:
        if time.monotonic() > until_s:
            raise StoreBusy(Undecided.CROWDED.value)
        time.sleep(LOOK_EVERY_S)
    return place


PUT_OFF = {PutOff.KEY: Undecided.CONTENDED, PutOff.ROOM: Undecided.CROWDED}
MOST_SCHEDULES = 16 * 2**20  # Bytes. A longer one can't be looked into, and is not changed by those it matters for.


def transact(operations: Sequence[Operation], dialect: Dialect) -> Steps[Done]:
    """Do the operations in one transaction. Each sees what the ones before it left."""
    sets = dialect.sets_of(operations)
    if sets is None:
        return (yield from _in_general(operations, (yield from dialect.look(operations)), Written(), dialect))
    rest = [operations[place] for place in sets.rest]
    seen: Seen | None = None
    if rest:
        rows, seen = yield from together(sets.statements, dialect.look(rest))
    else:
        rows = yield sets.statements
    made, written = sets.outcome(rows)
    decisions: dict[int, Decision] = {**made}
    left = [place for place in range(len(operations)) if place not in decisions and place not in sets.rest]
    if seen:
        steps = _in_general(rest, seen, written, dialect)
        done = yield from amid(steps) if left else steps
        decisions.update(zip(sets.rest, done.decisions, strict=True))
        written = Written(so_far=done.supply, work=done.work)
    if left:
        again = [operations[place] for place in left]
        done = yield from _in_general(again, (yield from dialect.look(again)), written, dialect)
        decisions.update(zip(left, done.decisions, strict=True))
    elif not seen:
        yield from dialect.write(written)
        done = Done((), written.supply(written.now_ms), written.work)
    told = [_as_seen(decisions[place], operation) for place, operation in enumerate(operations)]
    return Done(told, done.supply, done.work)


def hand_over(operations: Sequence[Operation], claims: Sequence[Operation], dialect: Dialect) -> Steps[Done]:
    """Do the operations, and then, in the same transaction, the claims that wait for what these add."""
    done = yield from amid(transact(operations, dialect))
    written = Written(so_far=done.supply, work=done.work, is_begun=True)
    last = yield from _in_general(claims, (yield from dialect.look(claims)), written, dialect)
    taken = Counter(task.group for decision in last.decisions if isinstance(decision, list) for task in decision)
    available = {group: number - taken[group] for group, number in last.supply.available.items()}
    supply = replace(last.supply, available={group: number for group, number in available.items() if number > 0})
    return Done([*done.decisions, *last.decisions], supply, last.work)


def _in_general(operations: Sequence[Operation], seen: Seen, written: Written, dialect: Dialect) -> Steps[Done]:
    """Look, decide, write. `written`: what is still to be written of what was done before."""
    yield from limits.look_into(operations, seen, dialect)
    yield from batches.look_into(operations, seen, dialect)
    yield from _read_data(operations, seen, dialect)
    yield from _read_claimed(seen, dialect)
    outcomes: list[Effect | Refusal | Decision | None] = [None] * len(operations)
    is_uncertain = seen.undecided or seen.locked_batches or seen.contended_batches
    if seen.kept or seen.first or seen.locked or seen.contended or is_uncertain:
        outcomes = [_known(operation, seen) for operation in operations]
    if any(operation.key for operation in operations):
        _put_off_repeated_keys(operations, outcomes)
    yield from refuse_too_many(operations, outcomes, dialect)
    open_places = [place for place, outcome in enumerate(outcomes) if outcome is None]
    world = World(
        seen.now_ms,
        seen.named,
        seen.candidates,
        seen.earliest,
        keys=seen.keys,
        holders=seen.holders,
        allowances=seen.allowances,
        batches=seen.batches,
        place_for=place_for,
        most_bytes=most_bytes(),
    )
    answers = decide([operations[place] for place in open_places], world)
    for place, answer in zip(open_places, answers, strict=True):
        outcomes[place] = PUT_OFF[answer] if isinstance(answer, PutOff) else answer
    decided = cast("list[Effect | Refusal | Decision]", outcomes)
    yield from _doubt_empty_claims(operations, decided, seen, dialect)
    drafts = sum([len(outcome.drafts) for outcome in decided if isinstance(outcome, Effect)])
    if len(seen.ids) < drafts:
        seen.ids = [*seen.ids, *(yield from dialect.new_ids(drafts - len(seen.ids)))]
    written = written_by(operations, decided, seen, written)
    if written.items:
        yield from dialect.note_key_groups(written)
    data = yield from _little_data(operations, decided, dialect)
    if written:
        yield from dialect.write(written)
    tasks = iter(written.drafts)
    if data:
        tasks = map(partial(_with_data, data), tasks)
    decisions = [
        _as_seen(_decision(outcome, tasks), operation) for operation, outcome in zip(operations, decided, strict=True)
    ]
    return Done(decisions, written.supply(seen.now_ms), written.work)


def _as_seen(decision: Decision, operation: Operation) -> Decision:
    if operation.scope.patterns is not None and isinstance(decision, list):
        decision[:] = [as_seen(task, operation.scope) for task in decision]
    return decision


def _read_data(operations: Sequence[Operation], seen: Seen, dialect: Dialect) -> Steps[None]:
    """Read data that is kept apart, where something depends on it.

    Messages of MassTasker bring the data of a successor, which may be the same; of what is purged in bulk a copy is
    kept, by chunks of little data; schedules name the groups that they feed.
    """
    apart: dict[int, Apart] = {}
    for operation in operations:
        if not isinstance(operation, Commit):
            continue
        sizes = {add.id: json_size(add.data) for add in operation.adds if len(add.data) >= PAYLOAD_BYTES and add.id}
        is_purge = operation.operator is not None and operation.operator.bulk
        if not (sizes or is_purge or operation.scope.is_restricted):
            continue
        for task_id in operation.changed_ids:
            if (task := seen.named.get(task_id)) and isinstance(task.data, Apart):
                is_schedule = task.group == SCHEDULES and sum(each.size for each in apart.values()) < MOST_SCHEDULES
                if sizes.get(task_id) == task.data.size or is_purge or is_schedule:
                    apart[task_id] = task.data
    if apart:
        [rows] = yield [dialect.payloads({each.payload for each in apart.values()})]
        found: dict[int, bytes] = dict(rows)
        whole = {id: seen.named[id]._replace(data=bytes(found[each.payload])) for id, each in apart.items()}
        seen.named = {**seen.named, **whole}


def _read_claimed(seen: Seen, dialect: Dialect) -> Steps[None]:
    """Read the tasks of claims that are repeated."""
    claimed = {key: each for key, (_, each) in seen.kept.items() if isinstance(each, Claimed)}
    if claimed:
        [rows] = yield [dialect.tasks_of([task_id for each in claimed.values() for task_id in each.ids])]
        found = {task.id: task for task in map(record_of, rows)}
        answers = {key: (seen.kept[key][0], each.answer(found)) for key, each in claimed.items()}
        seen.kept = {**seen.kept, **answers}


def _little_data(
    operations: Sequence[Operation], outcomes: Sequence[Effect | Refusal | Decision], dialect: Dialect
) -> Steps[dict[int, bytes]]:
    """Read data that is kept apart for the answers, by its payload, while it is little: a thread would cost more."""
    wanted, size = set[int](), 0
    for operation, outcome in zip(operations, outcomes, strict=True):
        if isinstance(outcome, Effect) and operation.is_told and not outcome.place:
            for task in outcome.drafts:
                if isinstance(task.data, Apart) and size < LARGE_BYTES:
                    wanted.add(task.data.payload)
                    size += task.data.size
    if not wanted:
        return {}
    [rows] = yield [dialect.payloads(wanted)]
    return {payload: bytes(data) for payload, data in rows}


def _with_data(data: Mapping[int, bytes], task: TaskRecord) -> TaskRecord:
    is_known = isinstance(task.data, Apart) and task.data.payload in data
    return task._replace(data=data[task.payload]) if is_known else task


def _decision(outcome: Effect | Refusal | Decision, tasks: Iterator[TaskRecord]) -> Decision:
    """What to answer; `tasks`: those that the effects left, in their order."""
    match outcome:
        case Effect():
            answer = outcome.answer(list(islice(tasks, len(outcome.drafts))))
            if outcome.place or outcome.is_truncated:
                return Told(answer, outcome.place, is_truncated=outcome.is_truncated)
            return answer
        case OtherKey():
            return InvalidInput({path: [right] for path, right in outcome.wrong})
        case Prohibited():
            return Forbidden(" ".join(outcome.forbidden))
        case Refusal():
            return CommitRefused(outcome)
    return outcome


def _known(operation: Operation, seen: Seen) -> Refusal | Decision | None:
    """An answer to an operation without a decision: it was answered before, or it can't be decided now."""
    if operation.key and operation.key.key in seen.kept:
        digest, answer = seen.kept[operation.key.key]
        if digest != operation.key.digest:
            return KeyReused("this key was used before with another request")
        return _with_place(answer, operation) if isinstance(answer, list) else cast("Refusal", answer)
    if seen.first and isinstance(operation, Query) and operation.only_reads:
        return _with_place(_read(operation, seen), operation)
    if seen.contended and not seen.contended.isdisjoint(named_keys([operation])):
        return Undecided.CONTENDED
    if seen.undecided and (groups := _undecided_groups(operation, seen)):
        return Undecided.LIMITS if any(map(seen.limits.are_held, groups)) else Undecided.CONTENDED
    if seen.locked_batches or seen.contended_batches:
        concerned = batches.concern(operation, seen.named)
        if not seen.contended_batches.isdisjoint(concerned):
            return Undecided.CONTENDED
        if not seen.locked_batches.isdisjoint(concerned):
            return Undecided.LOCKED
    return Undecided.LOCKED if _names_locked(operation, seen.locked) else None


def _undecided_groups(operation: Operation, seen: Seen) -> set[str]:
    """The groups for which the operation has to be put off."""
    if isinstance(operation, Claim):
        groups = set(operation.reachable)
        return groups if groups <= seen.undecided else set()
    return seen.undecided.intersection(values_to_lease([operation], seen.named, seen.limits))


def _with_place(tasks: list[TaskRecord], operation: Operation) -> Decision:
    """The tasks of an answer, with a place for it if it is large."""
    if not operation.is_told or (size := answer_size(tasks)) <= LARGE_BYTES:
        return tasks
    if (place := place_for(size)) is None:
        return Undecided.CROWDED
    told = tasks if isinstance(tasks, Told) else Told(tasks, place)
    told.place = place
    return told


def _read(query: Query, seen: Seen) -> list[TaskRecord]:
    """What it finds, as it was before the batch."""
    tasks = [task for group in query.reachable for task in seen.first[group]]
    return [task for task in tasks if task.available_at_ms <= (query.at_ms or seen.now_ms)]


def _put_off_repeated_keys(operations: Sequence[Operation], outcomes: list[Effect | Refusal | Decision | None]) -> None:
    """Of two operations with one key in a batch the second will find the first one's answer in the next."""
    seen_keys: set[str] = set()
    for place, operation in enumerate(operations):
        if operation.key and outcomes[place] is None:
            if operation.key.key in seen_keys:
                outcomes[place] = Undecided.CONTENDED
            seen_keys.add(operation.key.key)


def _names_locked(operation: Operation, locked: set[int]) -> bool:
    return bool(locked) and not locked.isdisjoint((*changed_ids([operation]), *operation.depends))


def _doubt_empty_claims(
    operations: Sequence[Operation], outcomes: list[Effect | Refusal | Decision], seen: Seen, dialect: Dialect
) -> Steps[None]:
    """A claim may say "nothing" only when there was nothing that skipped locks could hide."""
    found_nothing = {
        place: operation
        for place, operation in enumerate(operations)
        if isinstance(operation, Claim) and _is_empty(outcomes[place])
    }
    if not found_nothing:
        return
    drafts = [draft for outcome in outcomes if isinstance(outcome, Effect) for draft in outcome.drafts]
    queries = {place: query for place, query in found_nothing.items() if isinstance(query, Query)}
    if queries:
        yield from _doubt_empty_queries(queries, drafts, outcomes, seen, dialect)
    empty = {place: claim.reachable for place, claim in found_nothing.items() if place not in queries}
    if not empty:
        return
    yield from limits.learn_of(drafts, seen, dialect)
    filling = {
        draft.group
        for draft in drafts
        if draft.available_at_ms <= seen.now_ms
        and ((allowance := seen.allowances.get(draft.group)) is None or allowance.would_take(draft))
    }
    asked = {group for groups in empty.values() for group in groups}
    filling |= yield from dialect.groups_with_more(asked - filling - seen.exhausted, seen)
    for place, groups in empty.items():
        if not filling.isdisjoint(groups):
            outcomes[place] = Undecided.CONTENDED


def _is_empty(outcome: Effect | Refusal | Decision) -> bool:
    return not outcome.drafts if isinstance(outcome, Effect) else isinstance(outcome, list) and not outcome


def _doubt_empty_queries(
    queries: Mapping[int, Query],
    drafts: Iterable[TaskRecord],
    outcomes: list[Effect | Refusal | Decision],
    seen: Seen,
    dialect: Dialect,
) -> Steps[None]:
    """The same for queries, each of which has a moment of its own."""
    added = _earliest_by_group(draft for draft in drafts if not is_held(draft, seen.now_ms))
    hidden = yield from dialect.earliest_besides([query for query in queries.values() if not query.only_reads], seen)
    hidden = {group: earliest for group, earliest in hidden.items() if group not in seen.exhausted}
    for place, query in queries.items():
        known = [(added[group], seen.now_ms) for group in query.reachable if group in added]
        known += [hidden[group] for group in query.reachable if group in hidden and not query.only_reads]
        if any(available_at_ms <= (query.at_ms or now_ms) for available_at_ms, now_ms in known):
            outcomes[place] = Undecided.CONTENDED


def _earliest_by_group(tasks: Iterable[TaskRecord]) -> dict[str, int]:
    earliest: dict[str, int] = {}
    for task in tasks:
        earliest[task.group] = min(task.available_at_ms, earliest.get(task.group, task.available_at_ms))
    return earliest
