"""Large commits that only delete are done beside all else, on PostgreSQL: order, refusals, the end of the writer."""

import asyncio
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tasks_app.core.operations import Claim, Commit, ResendKey
from tasks_app.database import dialect_of
from tasks_app.models import Task
from tasks_app.writer import writer as writers
from taskstore.errors import CommitRefused, CommitUnknown, StoreUnavailable
from taskstore.types.batches import NewBatch, Plan
from taskstore.types.tasks import NewTask
from tests.behaviour.databases import only_postgresql
from tests.behaviour.people import ANN, BOB

pytestmark = only_postgresql

MANY = writers.LARGE_END


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
            writer._side_from_s = 0
            await scenario(writer)

        play(whole)

    return played


async def goes_aside(writer, monkeypatch, ids) -> bool:
    with stuck(writer, monkeypatch):
        answer = writer.submit(ending(ids))
        done, _ = await asyncio.wait([answer], timeout=0.3)
    assert await answer == []
    return bool(done)


def test_they_wait_for_nothing_else(play_ready, monkeypatch):
    async def scenario(writer):
        ids = await added(writer)
        with stuck(writer, monkeypatch):
            claim = writer.submit(Claim(groups=("none",), owner=BOB))
            await asyncio.sleep(0)
            assert await asyncio.wait_for(writer.submit(ending(ids)), 5) == []
            assert not claim.done()
        assert await claim == []
        assert not await goes_aside(writer, monkeypatch, await added(writer, MANY - 1))

    play_ready(scenario)
    assert not Task.objects.exists()


def test_what_is_unusual_is_done_with_all_else_and_so_are_the_next_ones_for_a_while(play_ready, monkeypatch):
    monkeypatch.setattr(writers, "SIDE_RESTS_S", 0.1)

    async def scenario(writer):
        ids, others = await added(writer), await added(writer)
        with pytest.raises(CommitRefused) as refused:
            await writer.submit(ending([*ids, others[-1] + 1_000]))
        assert refused.value.refusal.deletes == (others[-1] + 1_000,)
        assert not await goes_aside(writer, monkeypatch, ids)
        await asyncio.sleep(0.1)
        # A connection that housekeeping opens has the limits read again, which is unusual, too.
        assert await goes_aside(writer, monkeypatch, others) or await goes_aside(
            writer, monkeypatch, await added(writer)
        )

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
        writer._side_from_s = 0
        assert await writer.submit(ending(held, BOB, "a")) == []
        writer._side_from_s = 0
        assert await writer.submit(ending(held, BOB, "a")) == []
        writer._side_from_s = 0
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
