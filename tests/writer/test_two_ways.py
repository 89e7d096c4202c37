"""Random batches, done the short way of plain.py and the general way of postgresql.py: the same comes of them."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tasks_app.core.limits import Limits
from tasks_app.core.operations import EVERY_GROUP, Apart, Claim, Commit, GroupScope, Operation, ResendKey, Update
from tasks_app.database import claim_pools, postgresql_claims, transact
from tasks_app.database.claim_pools import Demand, best_first, demands_of, order_of
from tasks_app.database.plain import PlainPostgreSQL
from tasks_app.database.rows import PAYLOAD_BYTES, Steps, record_of
from tasks_app.database.transaction_values import Done, Undecided
from tasks_app.writer.connection import PostgreSQLConnection, parameters_of
from taskstore.errors import CommitRefused, TaskStoreError
from taskstore.types.tasks import Change, NewTask, Order
from tests.behaviour.databases import only_postgresql
from tests.emptying import empty

pytestmark = only_postgresql

SEEDS = range(8)
BATCHES = 40
OWNERS = (7, 8, 2**63 - 1)
GROUPS = ("mail", "mail/röd", "\U0001f4ec", "reports")
TEXTS = ("", "Zürich\n\t\x7f", 'q"\\{},', "x" * 400)
LABELS: Sequence[dict[str, str]] = ({}, {"team": "röd", "a": '"\\'}, {"failed_from": "reports"})
DATA = (b"", b"\0\xff", b"x" * (PAYLOAD_BYTES - 1), b"y" * PAYLOAD_BYTES)
START_MS = 1_900_000_000_000
# The numbers in the rows of each that are ids of tasks or of commits.
TABLES = {
    "tasks_app_task": ("id", "origin", "made_by_commit", "payload"),
    "tasks_app_endedtask": ("id", "origin", "successor", "made_by_commit", "ended_by_commit"),
    "tasks_app_payload": ("id",),
    "tasks_app_countdelta": (),
}


class Play:
    """A course of random batches. What it draws depends on the seed and on what came of the batches before."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch, *, is_plain: bool) -> None:
        self.chance = Random(seed)
        self.patch = patch
        self.is_plain = is_plain
        self.now_ms = START_MS
        self.ids: list[int] = []  # In the order in which they were answered.
        self.told: list[Any] = []
        self.short_ways = self.oldest_taken = 0

    async def run(self) -> None:
        connection = PostgreSQLConnection("default")
        if not self.is_plain:
            for name in ("look", "write"):
                self.patch.setattr(connection.dialect, name, getattr(super(PlainPostgreSQL, connection.dialect), name))
        other = await psycopg.AsyncConnection.connect(**parameters_of("default"))
        try:
            async with other:
                for _ in range(BATCHES):
                    await self._do_batch(connection, other)
                for table, numbers in TABLES.items():
                    self.told.append(sorted([row async for row in self._rows_of(other, table, numbers)], key=repr))
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
        living = await self._visible(other)
        operations = self._operations(living)
        self.patch.setattr("django.conf.settings.TASKSTORE_HISTORY", chance.choice(("full", "finished", "off")))
        known = await self._candidates(other, living)
        if self.is_plain:
            dialect.know_candidates(known)
        newest = max(living, default=0)
        async with self._held(other, chance.sample(self.ids, min(len(self.ids), chance.choice((0, 0, 0, 1, 5))))):
            done = await connection.run(self._noted(transact(operations, dialect)))
        for operation, decision in zip(operations, done.decisions, strict=True):
            self.told.append(self._outcome(decision))
            if isinstance(decision, list):
                # With a key it may be an answer that was given before.
                new = [task.id for task in decision if task.id not in self.ids]
                assert len(new) in (0, len(decision)), operation
                assert new == sorted(new)
                assert all(task_id > newest for task_id in new)
                self.ids += new
        self.told.append((sorted(done.supply.available.items()), sorted(done.supply.next_in_ms.items()), done.work))
        self.told.append(sorted(map(self._place, done.supply.gone)))

    def _noted(self, steps: Steps[Done]) -> Steps[Done]:
        """The steps, and whether they go the short way."""
        answers = None
        while True:
            try:
                statements = next(steps) if answers is None else steps.send(answers)
            except StopIteration as stop:
                result: Done = stop.value
                return result
            self.short_ways += any("ctid = ANY" in sql or "unnest(%s::tasks_app_" in sql for sql, _ in statements)
            self.oldest_taken += any("ctid::text" in sql and "LIMIT" in sql for sql, _ in statements)
            answers = yield statements

    def _operations(self, living: Sequence[int]) -> list[Operation]:
        return [
            self._claim() if self.chance.random() < 0.4 else self._commit(living)
            for _ in range(self.chance.choice((1, 1, 1, 2, 6)))
        ]

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
        return {group: sorted([*ids, *gone]) for group, ids in known.items() if self.chance.random() < 0.9}

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
                if table == "tasks_app_endedtask" and row["successor"] is not None:
                    assert row["successor"] > row["id"]
                if table == "tasks_app_countdelta":
                    del row["id"]
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


@pytest.fixture
def first_come(monkeypatch):
    """Claims in random order take the smallest id, so that both ways take the same."""

    def first(rows: Iterable[Any], demand: Demand) -> Any:
        if demand.oldest:
            return best_first(rows, demand)
        return sorted(map(record_of, rows), key=lambda task: (-task.priority, task.id))

    def taken(pool: claim_pools.Pool, number: int) -> list[int]:
        ids, pool.ids = pool.ids[:number], pool.ids[number:]
        return ids

    monkeypatch.setattr(postgresql_claims, "order_of", lambda demand: order_of(demand) if demand.oldest else "id")
    monkeypatch.setattr(postgresql_claims, "best_first", first)
    monkeypatch.setattr("tasks_app.database.postgresql.best_first", first)
    monkeypatch.setattr("tasks_app.database.plain.best_first", first)
    monkeypatch.setattr("tasks_app.database.postgresql.demands_of", sorted_demands)
    monkeypatch.setattr(claim_pools.Pool, "take", taken)
    monkeypatch.setattr(claim_pools, "KEPT_S", float("inf"))


def sorted_demands(operations: Iterable[Operation], besides: Limits) -> Any:
    return dict(sorted(demands_of(operations, besides).items()))


@pytest.mark.parametrize("seed", SEEDS)
def test_both_ways_come_to_the_same(transactional_db, first_come, monkeypatch, seed):
    plain = Play(seed, monkeypatch, is_plain=True)
    asyncio.run(plain.run())
    empty()
    general = Play(seed, monkeypatch, is_plain=False)
    asyncio.run(general.run())
    for one, other in zip(plain.told, general.told, strict=True):
        assert one == other
    assert plain.short_ways
    assert plain.oldest_taken
    assert general.short_ways == general.oldest_taken == 0
