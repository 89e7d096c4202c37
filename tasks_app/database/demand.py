"""The demand of a batch of operations on the database: ids, keys, and so many tasks of each group."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from taskstore.types.tasks import Order, Refusal

from ..core import idempotency
from ..core.operations import Claim, Commit, Key, Operation, Query, TaskRecord
from .rows import Row, record_of


def keys_of(operations: Iterable[Operation]) -> list[str]:
    return [operation.key.key for operation in operations if operation.key]


def kept_by_key(rows: Iterable[Row]) -> Mapping[str, tuple[str, list[TaskRecord] | Refusal]]:
    return {
        key: (digest, idempotency.answer_in(answer, [int(task_id) for task_id in ids.split(",") if task_id]))
        for key, digest, answer, ids in rows
    }


def named_keys(operations: Iterable[Operation]) -> list[Key]:
    """The keys that adds would take, in the order in which they are locked."""
    return sorted(
        {
            key
            for operation in operations
            if isinstance(operation, Commit)
            for add in operation.adds
            if add.unique and (key := add.key)
        }
    )


def changed_ids(operations: Iterable[Operation]) -> set[int]:
    return {task_id for operation in operations if isinstance(operation, Commit) for task_id in operation.changed_ids}


def depended_ids(operations: Iterable[Operation]) -> set[int]:
    return {task_id for operation in operations for task_id in operation.depends}


@dataclass(slots=True)
class Demand:
    """How many tasks of a group the claims of a batch ask for. `oldest`: in order, if one asks for that."""

    limit: int = 0
    oldest: bool = False


@dataclass(slots=True)
class Queried:
    """What the queries of a batch ask of a group: so many tasks to take, available at the latest of their moments."""

    tasks: int = 0
    latest_ms: int = 0
    is_read: bool = False  # One of them only reads.


def queried_by(operations: Iterable[Operation]) -> Mapping[str, Queried]:
    queried: dict[str, Queried] = defaultdict(Queried)
    for query in [operation for operation in operations if isinstance(operation, Query)]:
        for group in query.reachable:
            asked = queried[group]
            asked.is_read |= query.only_reads
            asked.tasks += 0 if query.only_reads else query.limit
            asked.latest_ms = max(asked.latest_ms, query.at_ms)
    return queried


def demands_of(operations: Iterable[Operation]) -> Mapping[str, Demand]:
    demands: dict[str, Demand] = defaultdict(Demand)
    for operation in operations:
        if isinstance(operation, Claim) and not isinstance(operation, Query):
            for group in operation.reachable:
                demands[group].limit += operation.limit
                demands[group].oldest |= operation.order is Order.OLDEST
    # No group is always the first whose turn it is.
    return dict(random.sample(list(demands.items()), len(demands)))


def order_of(demand: Demand) -> str:
    return "available_at_ms, id" if demand.oldest else "random()"


def best_first(rows: Iterable[Row], demand: Demand) -> list[TaskRecord]:
    """The tasks that were locked for claims: by priority, then as the claims asked."""
    tasks = [record_of(row) for row in rows]
    tasks.sort(key=lambda _: random.random())  # Half the time of `shuffle`.
    if demand.oldest:
        tasks.sort(key=lambda task: (task.available_at_ms, task.id))
    tasks.sort(key=lambda task: -task.priority)
    return tasks
