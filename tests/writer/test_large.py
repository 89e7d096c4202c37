"""Large commits are done beside all else, on PostgreSQL: order, refusals, the end of the writer."""

import asyncio
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async

from tasks_app.core.operations import Claim, Commit, Operator, ResendKey
from tasks_app.database import dialect_of
from tasks_app.models import Task
from tasks_app.writer import writer as writers
from tasks_app.writer.connection import parameters_of
from taskstore.errors import CommitRefused, CommitUnknown, StoreUnavailable
from taskstore.types.batches import NewBatch, Plan
from taskstore.types.tasks import Change, NewTask
from taskstore_project.backup import verifying
from tests.behaviour.databases import only_postgresql
from tests.behaviour.people import ANN, BOB

from .test_waiting import claiming

pytestmark = only_postgresql

MANY = writers.LARGE


def ending(ids: Sequence[int], owner: int = ANN, key: str = "") -> Commit:
    return Commit(owner=owner, deletes=tuple(ids), key=ResendKey(key, "digest") if key else None)


async def added(writer, number=MANY, group="mail", **more) -> list[int]:
    commit = Commit(owner=ANN, adds=(NewTask(group=group, **more),) * number)
    return [task.id for task in await writer.submit(commit)]


@contextmanager
def stuck(writer, monkeypatch):
    """The first connection does nothing until the end of the block."""
    run, goes_on = writer._connection.run, asyncio.Event()

    async def later(steps, **options):
        await goes_on.wait()
        return await run(steps, **options)

    with monkeypatch.context() as patch:
        patch.setattr(writer._connection, "run", later)
        try:
            yield
        finally:
            goes_on.set()


@pytest.fixture
def play_ready(play):
    """Plays with a writer whose second connection is open, and that knows the limits."""

    def played(scenario):
        async def whole(writer):
            await writer.submit(ending(await added(writer)))
            await scenario(writer)

        play(whole)

    return played


async def goes_aside(writer, monkeypatch, commit) -> bool:
    with stuck(writer, monkeypatch):
        answer = writer.submit(commit)
        done, _ = await asyncio.wait([answer], timeout=1)
    await asyncio.wait([answer])
    return bool(done)


def adding(number, **more):
    return Commit(owner=ANN, adds=(NewTask(group="mail", **more),) * number)


def changing(ids):
    return Commit(owner=ANN, updates=tuple(Change(id=each, data=b"new") for each in ids))


LARGE = {
    "adds": lambda ids: adding(MANY),
    "adds with keys": lambda ids: Commit(
        owner=ANN, adds=tuple(NewTask(group="mail", unique=f"{number}") for number in range(MANY))
    ),
    "adds of a batch": lambda ids: Commit(owner=ANN, adds=(NewTask(group="mail"),) * MANY, batch=NewBatch()),
    "updates": changing,
    "deletes": ending,
    "refused": lambda ids: ending([*ids, ids[-1] + 1_000]),
    "by an operator": lambda ids: Commit(
        owner=0, updates=changing(ids).updates, operator=Operator(name="olaf", bulk=1)
    ),
}


@pytest.mark.parametrize("what", LARGE)
def test_they_wait_for_nothing_else(play_ready, monkeypatch, what):
    async def scenario(writer):
        ids = await added(writer)
        with stuck(writer, monkeypatch):
            claim = writer.submit(Claim(groups=("none",), owner=BOB))
            await asyncio.sleep(0)
            asked = writer.submit(LARGE[what](ids))
            await asyncio.wait([asked], timeout=5)
            assert asked.done()
            assert not claim.done()
            assert (asked.exception() is not None) == (what == "refused")
        assert await claim == []

    play_ready(scenario)


def test_a_smaller_one_waits_with_all_else(play_ready, monkeypatch):
    async def scenario(writer):
        ids = await added(writer, MANY - 1)
        assert not await goes_aside(writer, monkeypatch, ending(ids))
        assert not await goes_aside(writer, monkeypatch, adding(MANY - 1))

    play_ready(scenario)


def test_what_others_hold_is_tried_with_all_else(play_ready):
    """A transaction of somebody else holds one of the tasks, and lets go of it."""

    async def scenario(writer):
        ids = await added(writer)
        async with await psycopg.AsyncConnection.connect(**parameters_of("default")) as other:
            await other.execute("SELECT 1 FROM tasks_app_task WHERE id = %s FOR UPDATE", [ids[3]])
            asked = asyncio.ensure_future(writer.submit(changing(ids)))
            await asyncio.sleep(0.3)
            assert not asked.done()
        assert len(await asyncio.wait_for(asked, 10)) == MANY

    play_ready(scenario)


def test_what_they_add_wakes_those_who_wait(play_ready):
    async def scenario(writer):
        waits = [asyncio.ensure_future(writer.submit(claiming())) for _ in range(3)]
        while len(writer._waiting) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await writer.submit(adding(MANY))
        assert [len(await asyncio.wait_for(each, 5)) for each in waits] == [1] * 3

    play_ready(scenario)


def test_all_that_arrives_is_done_once_in_any_order(play_ready):
    """Small and large ones, which change the same tasks at the same time: each succeeds as a whole, or not at all."""

    async def scenario(writer):
        chance = Random(7)
        ids = await added(writer, 3 * MANY)
        asked = []
        for number in range(40):
            these = chance.sample(ids, MANY if number % 2 else 3)
            asked.append(writer.submit((changing if chance.random() < 0.5 else ending)(these)))
            asked.append(writer.submit(Claim(groups=("mail",), owner=ANN, limit=2, duration_ms=1)))
            if number % 7 == 0:
                await asyncio.sleep(0.01)
        for each in asked:
            with suppress(CommitRefused):
                await each
        assert await sync_to_async(lambda: [*verifying.problems()])() == []

    play_ready(scenario)


def test_the_last_members_of_a_batch_close_it(play_ready):
    async def scenario(writer):
        plan = NewBatch(plan=Plan(then=Plan((NewTask(group="then"),))))
        members = await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"),) * MANY, batch=plan))
        await writer.submit(ending([task.id for task in members]))

    play_ready(scenario)
    assert [task.group for task in Task.objects.all()] == ["then"]


def test_leases_of_others_refuse_and_a_repeat_gets_the_first_answer(play_ready):
    async def scenario(writer):
        await added(writer)
        held = [task.id for task in await writer.submit(Claim(groups=("mail",), owner=BOB, limit=MANY))]
        with pytest.raises(CommitRefused) as refused:
            await writer.submit(ending(held))
        assert len(refused.value.refusal.owned) == MANY
        assert await writer.submit(ending(held, BOB, "a")) == []
        assert await writer.submit(ending(held, BOB, "a")) == []
        with pytest.raises(CommitRefused):
            await writer.submit(ending(held, BOB, "b"))

    play_ready(scenario)


def test_two_at_once_that_share_a_task_are_not_both_done(play_ready):
    async def scenario(writer):
        ids = await added(writer, 2 * MANY - 1)
        answers = [writer.submit(ending(part)) for part in (ids[:MANY], ids[MANY - 1 :])]
        found = await asyncio.gather(*answers, return_exceptions=True)
        assert sorted(type(each).__name__ for each in found) == ["CommitRefused", "list"]

    play_ready(scenario)
    assert Task.objects.count() == MANY - 1


def test_they_are_answered_before_the_writer_stops(play_ready):
    answers: list[asyncio.Future[Any]] = []

    async def scenario(writer):
        ids = [await added(writer) for _ in range(3)]
        answers.extend(asyncio.ensure_future(writer.submit(ending(each))) for each in [*ids, [1] * MANY])
        await asyncio.sleep(0)

    play_ready(scenario)
    assert [answer.exception() and type(answer.exception()) for answer in answers] == [None] * 3 + [CommitRefused]
    assert not Task.objects.exists()


def test_a_lost_connection_is_told_and_another_one_opened(play_ready):
    async def scenario(writer):
        first, second = await added(writer), await added(writer)
        await writer.submit(ending(first))
        pid = writer._side._connection.server_pid
        await sync_to_async(dialect_of().rows)("SELECT pg_terminate_backend(%s)", [pid])
        with suppress(StoreUnavailable, CommitUnknown):  # Unless it was noticed before.
            await writer.submit(ending(second))
        with suppress(CommitRefused):
            await writer.submit(ending(second))

    play_ready(scenario)
    assert not Task.objects.exists()
