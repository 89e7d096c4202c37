"""Random batches, done the short way of plain.py and the general way of postgresql.py: the same comes of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from operator import add
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tasks_app.core.limits import Limits
from tasks_app.core.operations import (
    EVERY_GROUP,
    Apart,
    Claim,
    Commit,
    GroupScope,
    Operation,
    Operator,
    ResendKey,
    Supply,
    Update,
)
from tasks_app.core.tally import COUNTERS, NUMBERS, Work, counter_in
from tasks_app.database import claim_pools, plain_sets, postgresql_claims, transact
from tasks_app.database.claim_pools import Demand, demands_of
from tasks_app.database.plain import PlainPostgreSQL
from tasks_app.database.plain_sets import Sets
from tasks_app.database.rows import PAYLOAD_BYTES, Steps, quoted, record_of
from tasks_app.database.transaction_values import Decision, Done, Undecided
from tasks_app.writer.connection import PostgreSQLConnection, parameters_of
from taskstore.errors import CommitRefused, TaskStoreError
from taskstore.types.tasks import Change, Ending, NewTask, Order
from tests.behaviour.databases import only_postgresql
from tests.emptying import empty

pytestmark = only_postgresql

SEEDS = range(8)
BATCHES = 40
OWNERS = (7, 8, 2**63 - 1)
GROUPS = ("mail", "mail/röd", "\U0001f4ec", "jobs/reports")
TEXTS = ("", "Zürich\n\t\x7f", 'q"\\{},', "x" * 400)
LABELS: Sequence[dict[str, str]] = ({}, {"team": "röd", "a": '"\\'}, {"failed_from": "jobs/reports"})
DATA = (b"", b"\0\xff", b"x" * (PAYLOAD_BYTES - 1), b"y" * PAYLOAD_BYTES)
START_MS = 1_900_000_000_000
# The numbers in the rows of each that are ids of tasks or of commits.
TABLES = {
    "tasks_app_task": ("id", "origin", "made_by_commit", "payload"),
    "tasks_app_endedtask": ("id", "origin", "successor", "made_by_commit", "ended_by_commit"),
    "tasks_app_payload": ("id",),
    "tasks_app_bulkitem": ("task", "origin", "commit"),
    "tasks_app_cancelledtask": ("id",),
}
# A batch that is done in parts has several rows of a group.
SUMS = [f"sum({name})::bigint" for name in quoted(NUMBERS)] + [f"string_agg({name}, ' ')" for name in quoted(COUNTERS)]
COUNTED = f'SELECT "group", minute, {", ".join(SUMS)} FROM tasks_app_countdelta GROUP BY "group", minute'  # noqa: S608


class Play:
    """A course of random batches. What it draws depends on the seed and on what came of the batches before."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch, plain: Play | None = None) -> None:
        self.chance = Random(seed)
        self.patch = patch
        self.is_plain = plain is None
        # By batch, what is done together: a claim for which there is too little comes after the operations beside it.
        self.parts: list[Sequence[Sequence[int]]] = []
        self.parts_before = iter(plain.parts if plain else ())
        self.now_ms = START_MS
        self.ids: list[int] = []  # In the order in which they were answered.
        self.told: list[Any] = []
        self.short_ways = self.sets_done = 0

    async def run(self) -> None:
        connection = PostgreSQLConnection("default")
        self.patch.setattr(Sets, "outcome", self._note_parts(Sets.outcome))
        self.patch.setattr(plain_sets, "LEAST", 0)
        if not self.is_plain:
            for name in ("row_of", "insert", "sets_of"):
                self.patch.setattr(connection.dialect, name, getattr(super(PlainPostgreSQL, connection.dialect), name))
        other = await psycopg.AsyncConnection.connect(**parameters_of("default"))
        try:
            async with other:
                for _ in range(BATCHES):
                    await self._do_batch(connection, other)
                for table, numbers in TABLES.items():
                    self.told.append(sorted([row async for row in self._rows_of(other, table, numbers)], key=repr))
                self.told.append(sorted([_counted(row) async for row in await other.execute(COUNTED)]))
        finally:
            await connection.close()

    async def _do_batch(self, connection: PostgreSQLConnection, other: psycopg.AsyncConnection) -> None:
        chance, dialect = self.chance, connection.dialect
        self.now_ms += chance.choice((0, 1, 999, 5_000, 120_000))
        self.patch.setattr(PlainPostgreSQL, "clock", f"CAST({self.now_ms} AS bigint)")
        paused = chance.choice(GROUPS) if chance.random() < 0.1 else None
        await other.execute("DELETE FROM tasks_app_pausedgroup")
        if paused:
            await other.execute(
                """INSERT INTO tasks_app_pausedgroup ("group", "by", reason, at) VALUES (%s, '', '', now())""", [paused]
            )
        await other.commit()
        living = sorted(await self._visible(other), key=self._place)
        self._have_first_come()
        operations = self._operations(living)
        self.patch.setattr("django.conf.settings.TASKSTORE_HISTORY", chance.choice(("full", "finished", "off")))
        known = await self._candidates(other, living)
        if self.is_plain:
            dialect.know_candidates(known)
        newest = max(living, default=0)
        async with self._held(other, chance.sample(self.ids, min(len(self.ids), chance.choice((0, 0, 0, 1, 5))))):
            supply, work, decisions = await self._done(operations, connection)
        for operation, decision in [(operations[place], decisions[place]) for part in self.parts[-1] for place in part]:
            if isinstance(operation, Commit) and operation.updates and operation.operator:
                # What becomes of these tasks, nobody is told.
                decision = [] if isinstance(decision, list) else decision
            self.told.append(self._outcome(decision))
            if isinstance(decision, list):
                # With a key it may be an answer that was given before.
                new = [task.id for task in decision if task.id not in self.ids]
                assert len(new) in (0, len(decision)), operation
                assert new == sorted(new)
                assert all(task_id > newest for task_id in new)
                self.ids += new
        self.ids += await self._untold(other)
        self.told.append((sorted(supply.available.items()), sorted(supply.next_in_ms.items()), work))
        self.told.append(sorted(map(self._place, supply.gone)))

    async def _done(
        self, operations: Sequence[Operation], connection: PostgreSQLConnection
    ) -> tuple[Supply, Work, Sequence[Decision]]:
        """What comes of them: of all at once, or the general way of the parts in which they were done before."""
        all_of_them = range(len(operations))
        if self.is_plain:
            self.parts.append([all_of_them])
            done = await connection.run(self._noted(transact(operations, connection.dialect)))
            return done.supply, done.work, done.decisions
        work, supply, decisions = Work(), Supply(), dict[int, Decision]()
        self.parts.append(next(self.parts_before))
        for places in self.parts[-1]:
            steps = transact([operations[place] for place in places], connection.dialect)
            done = await connection.run(self._noted(steps))
            decisions.update(zip(places, done.decisions, strict=True))
            work, supply = Work(*map(add, work, done.work)), _together(supply, done.supply)
        return supply, work, [decisions[place] for place in all_of_them]

    def _have_first_come(self) -> None:
        """Claims in random order take what was answered first, so that both ways take the same.

        Within a batch ids differ between the ways: what is done in sets has the smaller ones.
        """
        order = f"array_position(ARRAY[{', '.join(map(str, self.ids))}]::bigint[], id)"

        def order_of(demand: Demand) -> str:
            return f"available_at_ms, {order}" if demand.oldest else order

        def best_first(rows: Iterable[Any], demand: Demand) -> Any:
            ids = {task_id: place for place, task_id in enumerate(self.ids)}
            tasks = sorted(map(record_of, rows), key=lambda task: ids.get(task.id, len(ids)))
            return sorted(tasks, key=lambda task: (-task.priority, task.available_at_ms if demand.oldest else 0))

        self.patch.setattr(postgresql_claims, "order_of", order_of)
        for module in ("postgresql_claims", "postgresql"):
            self.patch.setattr(f"tasks_app.database.{module}.best_first", best_first)

    def _note_parts(self, outcome: Any) -> Any:
        def noted(sets: Sets, answers: Any) -> Any:
            done = outcome(sets, answers)
            left = {*range(len(sets.operations))} - {*done.decisions, *sets.rest}
            self.parts[-1] = [part for part in map(sorted, (done.decisions, sets.rest, left)) if part]
            self.sets_done += bool(done.decisions)
            return done

        return noted

    def _noted(self, steps: Steps[Done]) -> Steps[Done]:
        """The steps, and whether they go the short way."""
        answers = None
        while True:
            try:
                statements = next(steps) if answers is None else steps.send(answers)
            except StopIteration as stop:
                result: Done = stop.value
                return result
            self.short_ways += any("unnest(%s::tasks_app_" in sql for sql, _ in statements)
            answers = yield statements

    def _operations(self, living: Sequence[int]) -> list[Operation]:
        chance = self.chance
        if chance.random() < 0.3:
            return self._ends_and_claims(chance.sample(living, min(len(living), 6)))
        return [
            self._claim() if chance.random() < 0.4 else self._commit(living)
            for _ in range(chance.choice((1, 1, 1, 2, 6)))
        ]

    def _ends_and_claims(self, living: list[int]) -> list[Operation]:
        """As workers send them, mostly in vain: with one commit more that adds something."""
        chance = self.chance
        operations: list[Operation] = [
            Claim(
                groups=(chance.choice(GROUPS),),
                owner=chance.choice(OWNERS),
                limit=chance.choice((1, 2, 3)),
                key=self._key(),
            )
            for _ in range(chance.choice((0, 1, 3)))
        ]
        while living:
            deletes = [living.pop() for _ in range(min(len(living), chance.choice((1, 1, 2))))]
            scope = chance.choice((EVERY_GROUP, GroupScope(no_commands_because="no")))
            owner = chance.choice(OWNERS)
            operator = None
            if chance.random() < 0.3:
                ending = chance.choice((Ending.PURGED, Ending.CANCELLED))
                owner, operator = 0, Operator(name="ann", reason="old", ending=ending, bulk=chance.choice((0, 7)))
            commit = Commit(owner=owner, deletes=tuple(deletes), scope=scope, operator=operator, key=self._key())
            if chance.random() < 0.4:
                commit = self._in_bulk(deletes)
            operations.append(commit)
        operations += [self._commit([]) for _ in range(chance.choice((0, 0, 1)))]
        return chance.sample(operations, len(operations)) or [self._claim()]

    def _in_bulk(self, ids: Sequence[int]) -> Commit:
        chance = self.chance
        ending = chance.choice((Ending.REQUEUED, Ending.MOVED, Ending.CHANGED))
        changes = [replace(self._change(task_id), data=None, release=True) for task_id in ids]
        if chance.random() < 0.8:
            changes = [replace(change, failed_from=chance.choice(("", "mail"))) for change in changes]
        operator = Operator(name="ann", reason="again", ending=ending, bulk=chance.randrange(8, 2**40))
        return Commit(owner=0, updates=tuple(changes), operator=operator, key=self._key())

    def _claim(self) -> Claim:
        chance = self.chance
        is_odd = chance.random() < 0.05
        return Claim(
            groups=tuple(chance.sample(GROUPS, 2)) if is_odd else (chance.choice(GROUPS),),
            owner=chance.choice(OWNERS),
            duration_ms=chance.choice((-1, 0, 1, 1_000, 60_000)),
            limit=chance.choice((1, 1, 1, 2, 5)),
            order=Order.OLDEST if chance.random() < 0.3 else Order.RANDOM,
            scope=self._scope(),
            key=self._key(),
        )

    def _commit(self, living: Sequence[int]) -> Commit:
        chance = self.chance
        among = living if chance.random() < 0.9 else self.ids
        named = chance.sample(among, min(len(among), chance.choice((0, 1, 1, 2, 4))))
        if named and chance.random() < 0.05:
            named.append(chance.choice([*named, 2**62]))
        deletes = [task_id for task_id in named if chance.random() < 0.6]
        kind = Update if chance.random() < 0.2 else Commit
        adds = [self._add(deletes) for _ in range(chance.choice((0, 0, 1, 4)))]
        return kind(
            owner=chance.choice(OWNERS),
            adds=tuple(adds),
            updates=tuple(self._change(task_id) for task_id in named if task_id not in deletes),
            deletes=tuple(deletes),
            depends=tuple(chance.sample(self.ids, 1)) if self.ids and chance.random() < 0.03 else (),
            scope=self._scope(),
            key=self._key(),
        )

    def _add(self, deletes: Sequence[int]) -> NewTask:
        chance = self.chance
        add = NewTask(
            group=chance.choice(GROUPS),
            data=self._data(),
            data_type=chance.choice(TEXTS),
            timespec_ms=self._time(),
            error=chance.choice(TEXTS),
            labels=chance.choice(LABELS),
            priority=chance.choice((*[0] * 30, -100, 100)),
        )
        if deletes and chance.random() < 0.5:
            task_id = chance.choice(deletes)
            moving = self._change(task_id) if chance.random() < 0.5 else None
            return replace(add, id=task_id, moving=moving)
        return add

    def _change(self, task_id: int) -> Change:
        chance = self.chance
        return Change(
            id=task_id,
            data=chance.choice((None, self._data())),
            timespec_ms=self._time(),
            error=chance.choice((None, *TEXTS)),
            labels=chance.choice((None, *LABELS)),
            priority=chance.choice((*[None] * 30, 0, -1, 1)),
            group=chance.choice((None, None, *GROUPS)),
            release=chance.random() < 0.2,
        )

    def _data(self) -> bytes:
        return DATA[min(int(self.chance.expovariate(2)), 3)]

    def _time(self) -> int:
        return self.chance.choice((0, 0, 0, -5_000, -1, 1, self.now_ms, self.now_ms + 500))

    def _scope(self) -> GroupScope:
        return EVERY_GROUP if self.chance.random() < 0.9 else GroupScope(("mail*",))

    def _key(self) -> ResendKey | None:
        if self.chance.random() < 0.8:
            return None
        return ResendKey(f"ann/{self.chance.randrange(20)}", self.chance.choice(("a", "a", "b")))

    async def _candidates(self, other: psycopg.AsyncConnection, living: Sequence[int]) -> dict[str, list[int]]:
        """By group what a writer may think that it can claim: what was there, with some that are gone or held."""
        cursor = await other.execute('SELECT id, "group" FROM tasks_app_task WHERE priority = 0 ORDER BY id')
        available = await cursor.fetchall()
        await other.commit()
        known = {group: [task_id for task_id, name in available if name == group] for group in GROUPS}
        gone = self.chance.sample(self.ids, min(len(self.ids), self.chance.choice((0, 0, 1))))
        gone = [task_id for task_id in gone if task_id not in living]
        return {
            group: sorted([*ids, *gone], key=self._place) for group, ids in known.items() if self.chance.random() < 0.9
        }

    async def _untold(self, other: psycopg.AsyncConnection) -> list[int]:
        """The successors of which nobody was told, in the order of their chains."""
        cursor = await other.execute("SELECT id, origin FROM tasks_app_task WHERE NOT id = ANY(%s)", [self.ids])
        found = await cursor.fetchall()
        await other.commit()
        return [task_id for task_id, origin in sorted(found, key=lambda row: self._place(row[1]))]

    async def _visible(self, other: psycopg.AsyncConnection) -> list[int]:
        cursor = await other.execute("SELECT id FROM tasks_app_task ORDER BY id")
        ids = [task_id for (task_id,) in await cursor.fetchall()]
        await other.commit()
        return ids

    @asynccontextmanager
    async def _held(self, other: psycopg.AsyncConnection, ids: Iterable[int]) -> Any:
        await other.execute("SELECT FROM tasks_app_task WHERE id = ANY(%s) FOR UPDATE", [list(ids)])
        yield
        await other.rollback()

    async def _rows_of(self, other: psycopg.AsyncConnection, table: str, numbers: Sequence[str]) -> Any:
        async with other.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            await cursor.execute(SQL("SELECT * FROM {}").format(Identifier(table)))
            async for row in cursor:
                if table == "tasks_app_bulkitem":
                    del row["id"]
                if table == "tasks_app_endedtask" and row["successor"] is not None:
                    assert row["successor"] > row["id"]
                ids = {name: row[name] and self._place(row[name]) for name in numbers if "commit" not in name}
                yield {**row, **ids, **{name: 0 for name in numbers if "commit" in name}}

    def _place(self, task_id: int) -> int:
        """What stands for an id: ids differ between the ways by what is skipped."""
        return self.ids.index(task_id) + 1

    def _outcome(self, decision: Any) -> Any:
        if isinstance(decision, Undecided):
            return decision
        if isinstance(decision, CommitRefused):
            refusal = decision.refusal
            named = (refusal.changes, refusal.deletes, refusal.depends, refusal.owned)
            return [len(refusal.bugs), *[[each in self.ids and self._place(each) for each in ids] for ids in named]]
        if isinstance(decision, TaskStoreError):
            return repr(decision)
        new = {task.id for task in decision}
        places = {task_id: place for place, task_id in enumerate([*self.ids, *sorted(new - {*self.ids})], start=1)}
        return [
            task._replace(
                id=places[task.id],
                origin=places[task.origin],
                made_by_commit=0,
                payload=0,
                labels=dict(task.labels),
                data=task.data.size if isinstance(task.data, Apart) else task.data,
            )
            for task in decision
        ]


def _together(first: Supply, second: Supply) -> Supply:
    available = Counter(first.available) + Counter(second.available)
    both = [(group, in_ms) for each in (first, second) for group, in_ms in each.next_in_ms.items()]
    next_in_ms = {group: min(in_ms for name, in_ms in both if name == group) for group, _ in both}
    return Supply(available=available, next_in_ms=next_in_ms, gone=first.gone | second.gone)


def _counted(row: Sequence[Any]) -> Sequence[Any]:
    return [
        each if isinstance(each, int) else sorted(counter_in(str(each)).items()) if place > 1 else each
        for place, each in enumerate(row)
    ]


@pytest.fixture
def first_come(monkeypatch):
    """Writers know nothing but what they are told, and take groups in order."""
    monkeypatch.setattr("tasks_app.database.postgresql.demands_of", sorted_demands)
    monkeypatch.setattr(claim_pools.Pool, "take", taken)
    monkeypatch.setattr(claim_pools, "KEPT_S", float("inf"))


def taken(pool: claim_pools.Pool, number: int) -> list[int]:
    ids, pool.ids = pool.ids[:number], pool.ids[number:]
    return ids


def sorted_demands(operations: Iterable[Operation], besides: Limits) -> Any:
    return dict(sorted(demands_of(operations, besides).items()))


@pytest.mark.parametrize("seed", SEEDS)
def test_both_ways_come_to_the_same(transactional_db, first_come, monkeypatch, seed):
    plain = Play(seed, monkeypatch)
    asyncio.run(plain.run())
    empty()
    general = Play(seed, monkeypatch, plain)
    asyncio.run(general.run())
    for one, other in zip(plain.told, general.told, strict=True):
        assert one == other
    assert plain.short_ways
    assert plain.sets_done
    assert general.short_ways == 0
