"""What a writer knows of groups that are claimed from all the time, for half a second: pure, but for the clock.

Each claim may get any of the thousand longest available tasks. To read their ids costs more than all else
that a claim does, so they are read once and handed out one by one, with some more that take their places.
Whoever takes one of them looks whether it is there still, and whether something of a higher priority has come.

A scan starts at the mark, the oldest available time that was found last: rows that are gone stay in
an index until nobody can see them any more, and at the head of a busy group there may be a million.
What becomes available below a mark in another process (an old time was asked for, a long transaction
ended) is found when the marks are forgotten, or as soon as there is not enough above it. Where a scan from
the start has taken long, because somebody holds an old snapshot, it is found within a minute.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from taskstore.types.tasks import Order

from ..core import idempotency
from ..core.limits import Limits
from ..core.operations import Claim, Commit, Key, Operation, Query, TaskRecord, Update
from .rows import Row, record_of

CANDIDATES = 1_000  # A claim chooses among this many of the longest available, so that none starves.
BATCHES_AHEAD, MOST_AHEAD = 8, 8_000  # For so many batches like this one ids are read, and at most so many.
KEPT_S = 0.5
AGAIN_S = 0.05  # The mark of a group that is too small for a pool is so old at most.
NO_MARK_MS = -(2**63)
COSTLY_MS = 5  # Of a scan: the next ones begin where it has found something, for so many times as long as it took.
COSTLY_TIMES, MOST_KEPT_S = 100, 60.0
LATER_S = 1.0  # By so much later the other scans look from the start, so that they need not when one has.
MARGIN_MS = 5_000  # Transactions that were under way may add below that.
NO_LIMITS = Limits()
Known = tuple[int, list[int]]  # A priority, and ids of tasks of that priority.


@dataclass(slots=True)
class Pool:
    read_s: float
    mark_ms: int
    priority: int = 0
    # Of that priority. None where there are fewer than CANDIDATES.
    ids: list[int] = field(default_factory=list)
    next_ids: list[int] = field(default_factory=list)  # Available for less long than these; of them the longest last.
    is_for_sets: bool = True  # See plain_sets.py.

    def __len__(self) -> int:
        return len(self.ids) + len(self.next_ids)

    def take(self, number: int) -> list[int]:
        """So many of the ids, at random; in order. They leave the pool: each makes room for the first of the next."""
        taken = []
        for _ in range(number):
            place = int(random.random() * len(self.ids))
            taken.append(self.ids[place])
            if self.next_ids:
                self.ids[place] = self.next_ids.pop()
            else:
                self.ids[place] = self.ids[-1]
                self.ids.pop()
        return sorted(taken)


class Pools:
    """By group. Of several writers each prefers a class of ids, so that they seldom choose the same task."""

    def __init__(self) -> None:
        self.writers, self.own_class = 1, 0  # So many write; this one prefers ids that leave this remainder.
        self._pools: dict[str, Pool] = {}
        self._starts: dict[str, tuple[int, float]] = {}  # Where scans begin without a pool, and until when.
        self._forgotten_s = 0.0
        self._claimed_from: set[str] = set()  # Since then.
        self._busy: frozenset[str] = frozenset()  # Groups of this batch that were claimed from just before.

    def begin(self, groups: Collection[str]) -> None:
        """A batch begins that claims from these groups."""
        self._busy = frozenset(groups).intersection(self._claimed_from)
        if time.monotonic() - self._forgotten_s > KEPT_S:
            self._pools.clear()
            self._claimed_from.clear()
            self._forgotten_s = time.monotonic()
        self._claimed_from.update(groups)

    def mark_of(self, group: str, late_s: float = LATER_S) -> int:
        """Where a scan begins."""
        pool = self._pools.get(group)
        return self.start_of(group, late_s) if pool is None else pool.mark_ms

    def start_of(self, group: str, late_s: float = LATER_S) -> int:
        """Where a scan begins that is to find all. A costly one is left to those that tell what they cost."""
        mark_ms, until_s = self._starts.get(group, (NO_MARK_MS, math.inf))
        return mark_ms if time.monotonic() < until_s + late_s else NO_MARK_MS

    def knows(self, group: str, number: int) -> bool:
        """Whether so many are known of a group that may be claimed in sets."""
        pool, now_s = self._pools.get(group), time.monotonic()
        if pool is None or not pool.is_for_sets or now_s - self._forgotten_s > KEPT_S:
            return False
        return len(pool) >= number

    def put_back(self, group: str, ids: Iterable[int]) -> None:
        """Nothing came of taking these: something is unusual about the group, and probably will be for a while."""
        if (pool := self._pools.get(group)) is not None:
            left = [*ids, *pool.ids]
            pool.ids, pool.next_ids = left[:CANDIDATES], [*pool.next_ids, *left[CANDIDATES:]]
            pool.is_for_sets = False

    def take_known(self, demands: Mapping[str, Demand]) -> dict[str, Known]:
        """What to claim, of the groups of which enough is known."""
        found = {group: self.take(group, demand.limit) for group, demand in demands.items() if not demand.oldest}
        return {group: each for group, each in found.items() if each}

    def take(self, group: str, number: int) -> Known | None:
        """A priority and so many ids of it; None where that many are not known."""
        pool = self._pools.get(group)
        return (pool.priority, pool.take(number)) if pool is not None and len(pool) >= number else None

    def must_read(self, group: str, number: int) -> bool:
        """Whether this batch should also read what the next ones need. Not for a claim now and then."""
        pool = self._pools.get(group)
        if pool is None or (pool.ids and len(pool) < number):
            return group in self._busy
        return not pool.ids and group in self._busy and time.monotonic() - pool.read_s > AGAIN_S

    @staticmethod
    def number_to_read(number: int) -> int:
        """How many ids to read when a batch claims this many."""
        return CANDIDATES + min(BATCHES_AHEAD * number, MOST_AHEAD)

    def note(self, group: str, levels: Sequence[tuple[int, list[int], int]], taken: Iterable[int]) -> None:
        """What was read: priority, ids and the oldest available time of each level, the highest priority first.

        The ids: the longest available first.
        """
        if not levels:
            self.forget(group)
            return
        priority, ids, _ = levels[0]
        pool = Pool(time.monotonic(), min(mark_ms for *_, mark_ms in levels), priority)
        if len(ids) >= CANDIDATES:
            gone = {*taken}
            left = [task_id for task_id in ids if task_id not in gone]
            preferred = [task_id for task_id in left if task_id % self.writers == self.own_class]
            # Where few are left, the other writers don't claim from this group: their classes are for all.
            if len(preferred) * 2 * self.writers >= len(left):
                left = preferred
            pool.ids, pool.next_ids = left[:CANDIDATES], left[: CANDIDATES - 1 : -1]
        self._pools[group] = pool

    def know(self, group: str, ids: Sequence[int]) -> None:
        """These are the longest available tasks of the group, of which none has a priority."""
        self._forgotten_s = time.monotonic()
        self._pools[group] = Pool(self._forgotten_s, NO_MARK_MS, ids=[*ids])

    def note_earliest(self, group: str, earliest: Sequence[TaskRecord], asked: int) -> None:
        """What was found for so many queries, whatever its priority: the mark of a group of which no more is known."""
        if len(earliest) < asked:
            self.forget(group)
        elif group not in self._pools:
            self._pools[group] = Pool(time.monotonic(), earliest[0].available_at_ms)

    def note_cost(self, group: str, start_ms: int, took_ms: int, oldest_ms: int) -> None:
        """A scan from there has taken so long, and found nothing that is older."""
        _, until_s = self._starts.get(group, (NO_MARK_MS, 0.0))
        if start_ms == NO_MARK_MS:  # What the others cost says nothing about this one.
            kept_s = min(COSTLY_TIMES * took_ms / 1_000, MOST_KEPT_S)
            until_s = time.monotonic() + kept_s if took_ms > COSTLY_MS else 0.0
        if until_s:
            self._starts[group] = (oldest_ms - MARGIN_MS, until_s)
        else:
            self._starts.pop(group, None)

    def forget(self, group: str) -> None:
        """There was not enough: look from the start."""
        self._pools.pop(group, None)

    def lower(self, group: str, available_at_ms: int) -> None:
        """Such a task is there now, too."""
        pool = self._pools.get(group)
        if pool is not None and available_at_ms < pool.mark_ms:
            pool.mark_ms = available_at_ms
        if self._starts:
            mark_ms, until_s = self._starts.get(group, (NO_MARK_MS, 0.0))
            if available_at_ms < mark_ms:
                self._starts[group] = (available_at_ms, until_s)


# ---- The demand of a batch of operations on the database: ids, keys, and so many tasks of each group


def keys_of(operations: Iterable[Operation]) -> list[str]:
    return [operation.key.key for operation in operations if operation.key]


def kept_by_key(rows: Iterable[Row]) -> Mapping[str, tuple[str, idempotency.Answer]]:
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


def drafts_of(operations: Sequence[Operation]) -> tuple[int, Sequence[int], Sequence[int]]:
    """How many tasks the plain commits will add, which ids these replace, and for each its owner.

    None where several commits name the same task: some of them will be refused, and would use up ids.
    """
    drafts = 0
    named: list[int] = []
    replaced: list[int] = []
    owners: list[int] = []
    for operation in operations:
        if not isinstance(operation, Commit):
            continue
        named += operation.changed_ids
        new = len(operation.adds) + len(operation.updates)
        if not new or operation.depends or operation.operator:
            continue
        if any(add.unique or not add.group or not operation.scope.allows(add.group) for add in operation.adds):
            continue
        if operation.scope.patterns is not None and isinstance(operation, Update):
            continue
        drafts += new
        replaced += operation.changed_ids
        owners += [operation.owner] * (len(replaced) - len(owners))
    return (drafts, replaced, owners) if len(set(named)) == len(named) or not replaced else (0, (), ())


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


def queried_by(operations: Iterable[Operation], besides: Limits = NO_LIMITS) -> Mapping[str, Queried]:
    """`besides`: without what is to be taken of groups with limits; see limits.py."""
    queried: dict[str, Queried] = defaultdict(Queried)
    for query in [operation for operation in operations if isinstance(operation, Query)]:
        for group in query.reachable:
            asked = queried[group]
            asked.is_read |= query.only_reads
            if besides.of(group):
                continue
            asked.tasks += 0 if query.only_reads else query.limit
            asked.latest_ms = max(asked.latest_ms, query.at_ms)
    return queried


def demands_of(operations: Iterable[Operation], besides: Limits = NO_LIMITS) -> Mapping[str, Demand]:
    """`besides`: without the groups with limits; see limits.py."""
    demands: dict[str, Demand] = defaultdict(Demand)
    for operation in operations:
        if isinstance(operation, Claim) and not isinstance(operation, Query):
            for group in operation.reachable:
                if not besides.of(group):
                    demands[group].limit += operation.limit
                    demands[group].oldest |= operation.order is Order.OLDEST
    # No group is always the first whose turn it is.
    return dict(random.sample(list(demands.items()), len(demands))) if len(demands) > 1 else demands


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
