"""What is added is handed to claims that wait for it in the same transaction, and as the next one would."""

import asyncio
import random
from functools import partial
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from tasks_app import database
from tasks_app.control import pauses
from tasks_app.core.operations import Claim, Commit, GroupScope, Query, ResendKey, TaskRecord
from tasks_app.models import EndedTask, Task
from tasks_app.writer import writer as writer_module
from taskstore.errors import CommitRefused
from taskstore.types.batches import NewBatch
from taskstore.types.limits import Rate
from taskstore.types.tasks import NewTask, Order
from taskstore_project.backup import verifying
from tests.behaviour.people import ANN, BOB
from tests.emptying import empty

from .test_waiting import LONG_MS, adding, claiming, parked, waiting

GROUPS = ("mail", "reports", "mail/röd")


@pytest.fixture
def transactions(monkeypatch):
    """How many operations each transaction of the writer had, once it is called with the writer."""

    def note(writer):
        sizes, run = [], writer._connection.run

        async def noted(steps, **options):
            done = await run(steps, **options)
            sizes.append(len(done.decisions))
            return done

        monkeypatch.setattr(writer._connection, "run", noted)
        return sizes

    return note


@pytest.fixture(autouse=True)
def no_other_look(monkeypatch):
    monkeypatch.setattr("tasks_app.writer.waiting_claims.LOOK_EVERY_S", 60)


def test_it_needs_no_transaction_of_its_own(play, transactions):
    async def scenario(writer):
        waits = await parked(writer, claiming())
        sizes = transactions(writer)
        [added] = await writer.submit(adding(data=b"letter"))
        [task] = await waits
        assert (task.origin, task.claims, task.data, task.owner) == (added.id, 1, b"letter", BOB)
        assert task.id > added.id
        assert sizes == [2]
        assert len(writer._waiting) == 0

    play(scenario)


def test_the_longest_waiting_are_served_and_the_others_go_on(play, transactions):
    async def scenario(writer):
        first, second, third = [await parked(writer, claiming()) for _ in range(3)]
        sizes = transactions(writer)
        await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"),) * 2))
        assert [len(await each) for each in (first, second)] == [1, 1]
        assert sizes == [3]
        assert not third.done()

    play(scenario)


def test_more_than_so_many_share_the_next_transaction(play, transactions, monkeypatch):
    monkeypatch.setattr(writer_module, "MOST_RECEIVERS", 3)

    async def scenario(writer):
        waits = [await parked(writer, claiming()) for _ in range(8)]
        sizes = transactions(writer)
        await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"),) * 7))
        assert [len(await each) for each in waits[:7]] == [1] * 7
        assert sizes == [4, 4]
        assert not waits[7].done()

    play(scenario)


def test_so_many_are_those_of_all_groups(play, transactions, monkeypatch):
    monkeypatch.setattr(writer_module, "MOST_RECEIVERS", 3)

    async def scenario(writer):
        waits = [await parked(writer, claiming(group)) for group in ("mail", "reports", "mail", "reports")]
        sizes = transactions(writer)
        await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"), NewTask(group="reports")) * 2))
        assert [len(await each) for each in waits] == [1] * 4
        assert sizes == [4, 1]

    play(scenario)


@pytest.mark.parametrize("of_the_group", ["none", "later", "paused", "limited"])
def test_who_gets_nothing_keeps_its_place(play, of_the_group):
    async def scenario(writer):
        if of_the_group == "paused":
            await sync_to_async(pauses.pause)("mail")
        if of_the_group == "limited":
            await sync_to_async(Task.objects.set_limits)("mail", running=1)
            await writer.submit(adding())
            assert await writer.submit(claiming())
        first, second = [await parked(writer, claiming()) for _ in range(2)]
        commit = adding(timespec_ms=-LONG_MS if of_the_group == "later" else 0)
        if of_the_group == "none":
            with pytest.raises(CommitRefused):
                await writer.submit(Commit(owner=ANN, adds=commit.adds, depends=(2**60,)))
        else:
            await writer.submit(commit)
        await waiting(writer, 2)
        await sync_to_async(undo)(of_the_group)
        if of_the_group in ("none", "later"):
            await writer.submit(adding())
        assert len(await asyncio.wait_for(first, timeout=5)) == 1
        assert not second.done()

    def undo(of_the_group):
        if of_the_group == "paused":
            pauses.resume("mail")
        if of_the_group == "limited":
            Task.objects.set_limits("mail", running=2)

    play(scenario)


def test_what_is_older_goes_first(play):
    async def scenario(writer):
        waits = await parked(writer, claiming(order=Order.OLDEST))
        [older] = await sync_to_async(added_beside)()
        await writer.submit(adding())
        [task] = await waits
        assert task.origin == older.id

    play(scenario)


def added_beside():
    """Whoever waits is not told of it."""
    try:
        return database.run(adding(), "default")
    finally:
        connections.close_all()


def test_a_higher_priority_goes_first(play):
    async def scenario(writer):
        waits = await parked(writer, claiming())
        added = await writer.submit(
            Commit(owner=ANN, adds=(NewTask(group="mail"), NewTask(group="mail", priority=2), NewTask(group="mail")))
        )
        [task] = await waits
        assert task.origin == added[1].id

    play(scenario)


def test_who_has_gone_gives_it_back(play, monkeypatch):
    async def scenario(writer):
        waits = await parked(writer, claiming())
        run = writer._connection.run

        async def run_until_they_go(steps, **options):
            done = await run(steps, **options)
            waits.cancel()
            return done

        with monkeypatch.context() as patch:
            patch.setattr(writer._connection, "run", run_until_they_go)
            [added] = await writer.submit(adding())
        [task] = await asyncio.wait_for(writer.submit(claiming()), timeout=5)
        assert (task.origin, task.claims) == (added.id, 2)

    play(scenario)


def test_a_claim_with_a_key_gets_the_same_again(play):
    async def scenario(writer):
        keyed = claiming(key=ResendKey("ann: k", "digest"))
        waits = await parked(writer, keyed)
        await writer.submit(adding())
        got = await waits
        assert await writer.submit(keyed) == got
        assert len(got) == 1

    play(scenario)


def test_a_query_that_only_reads_leaves_it_to_others(play):
    async def scenario(writer):
        reads = await parked(writer, Query(groups=("mail",), wait_ms=LONG_MS))
        waits = await parked(writer, claiming())
        [added] = await writer.submit(adding())
        assert [task.id for task in await asyncio.wait_for(reads, timeout=5)] == [added.id]
        assert [task.origin for task in await asyncio.wait_for(waits, timeout=5)] == [added.id]

    play(scenario)


def test_a_claim_that_fails_does_not_fail_what_it_waits_for(play, monkeypatch):
    async def scenario(writer):
        waits = await parked(writer, claiming())
        dialect = writer._connection.dialect
        look = type(dialect).look

        def broken(self, operations):
            if any(isinstance(operation, Claim) for operation in operations):
                raise RuntimeError("a defect")
            return look(self, operations)

        with monkeypatch.context() as patch:
            patch.setattr(type(dialect), "look", broken)
            [added] = await writer.submit(adding())
            with pytest.raises(RuntimeError):
                await waits
        assert [task.origin for task in await writer.submit(claiming())] == [added.id]

    play(scenario)


# ---- As in the next transaction


@pytest.mark.parametrize("seed", range(6))
def test_it_comes_to_the_same_as_in_the_next_transaction(play, monkeypatch, seed):
    told: list[list[Any]] = []
    monkeypatch.setattr(random, "random", lambda: 0.0)
    monkeypatch.setattr(random, "sample", lambda these, number: [*these][:number])
    monkeypatch.setattr(random, "shuffle", lambda these: None)
    for most in (writer_module.MOST_RECEIVERS, 0):
        monkeypatch.setattr(writer_module, "MOST_RECEIVERS", most)
        told.append([])
        play(partial(course, chance=random.Random(seed), told=told[-1]))
        told[-1].append(what_there_is())
        assert [*verifying.problems()] == []
        empty()
    assert told[0] == told[1]
    assert len([each for each in told[0] if each and isinstance(each, list)]) > 10


async def course(writer, chance, told):
    """Adds of all kinds to groups with limits, priorities and keys, where some wait for them."""
    await sync_to_async(Task.objects.set_limits)("mail", running=5)
    await sync_to_async(Task.objects.set_limits)("reports", running=1, by="team", rate=Rate(30, 3_600_000))
    for number in range(25):
        waits: list[asyncio.Future[list[TaskRecord]]] = []
        for _ in range(chance.randrange(4)):
            groups = chance.choice((("mail",), ("reports",), ("mail/röd",), GROUPS))
            claim = Claim(
                groups=groups,
                owner=chance.choice((7, 8)),
                limit=chance.choice((1, 3)) if len(groups) == 1 else 1,
                order=Order.OLDEST,
                scope=chance.choice((GroupScope(), GroupScope(("mail*", "reports")))),
                duration_ms=3_600_000,
                key=ResendKey(f"k{number}", "d") if chance.random() < 0.2 and not waits else None,
                wait_ms=LONG_MS,
            )
            waits.append(asyncio.ensure_future(writer.submit(claim)))
            await asyncio.sleep(0)
        await settled(writer, waits)
        adds = tuple(
            NewTask(
                group=chance.choice(GROUPS),
                data=chance.choice((b"", b"1", b"x" * 5_000)),
                priority=chance.choice((0, 0, 3)),
                labels=chance.choice(({}, {"team": "röd"}, {"team": "blau"})),
                unique=chance.choice((None, None, "a", "b")),
                timespec_ms=chance.choice((0, 0, 0, -3_600_000)),
                error=chance.choice(("", "", "E: x")),
            )
            for _ in range(chance.randrange(1, 4))
        )
        batch = NewBatch(name=f"b{number}") if chance.random() < 0.3 else None
        try:
            await writer.submit(Commit(owner=7, adds=adds, batch=batch, depends=(1,) if chance.random() < 0.1 else ()))
        except CommitRefused as refusal:
            told.append(str(refusal)[:20])
        await settled(writer, waits)
        for each in waits:
            if each.done():
                tasks = await each
                told.append([(task.group, task.data, task.claims, task.owner, task.priority) for task in tasks])
                if chance.random() < 0.7 and tasks:
                    await writer.submit(Commit(owner=tasks[0].owner, deletes=tuple(task.id for task in tasks)))
            else:
                told.append("waits")
                each.cancel()
        await waiting(writer, 0)


async def settled(writer, waits):
    """Return when nothing is under way: each claim has its tasks, or waits."""
    while len(writer._waiting) != sum(not each.done() for each in waits) or writer._queue:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def what_there_is():
    origins = {each for rows in (EndedTask, Task) for each in rows.objects.values_list("origin", flat=True)}
    places = {origin: place for place, origin in enumerate(sorted(origins))}
    tasks = sorted(
        (
            places[task.origin],
            task.group,
            task.owner,
            task.claims,
            task.leased_since_ms > 0,
            task.unique,
            bool(task.batch),
        )
        for task in Task.objects.all()
    )
    ended = sorted(
        (places[each.origin], each.claims, each.group, each.ending, each.ended_by, each.successor is None)
        for each in EndedTask.objects.all()
    )
    return tasks, ended
