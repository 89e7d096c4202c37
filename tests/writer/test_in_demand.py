"""A writer that claims from one group all the time, and so knows what to claim next, while others take just that."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from tasks_app.core.operations import Claim, Commit
from tasks_app.models import Task
from taskstore.errors import StoreUnavailable
from taskstore.types.tasks import NewTask
from tests.behaviour.databases import only_postgresql
from tests.behaviour.people import ANN, BOB

MANY = 1_500
CLAIM = Claim(groups=("mail",), owner=BOB)
ADD = Commit(owner=ANN, adds=(NewTask(group="mail"),))


async def in_demand(writer):
    """Make the group one that is claimed from all the time. Returns the ids of its ready tasks."""
    await writer.submit(Commit(owner=ANN, adds=ADD.adds * MANY))
    for _ in range(3):
        await writer.submit(CLAIM)
    ready = Task.objects.filter(group="mail", leased_since_ms=0).values_list("id", flat=True)
    return await sync_to_async(lambda: list(ready.order_by("id")))()


@asynccontextmanager
async def held(ids):
    """Somebody else has locked these tasks."""
    is_locked, may_end = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SELECT FROM tasks_app_task WHERE id = ANY(%s) FOR UPDATE", [ids])
            is_locked.set()
            may_end.wait(60)
        connection.close()

    holding = asyncio.ensure_future(asyncio.to_thread(hold))
    await asyncio.to_thread(is_locked.wait)
    try:
        yield
    finally:
        may_end.set()
        await holding


@only_postgresql
def test_a_claim_gets_a_task_that_nobody_holds(play):
    async def scenario(writer):
        ids = await in_demand(writer)
        async with held(ids[::2]):
            claimed = [await writer.submit(CLAIM) for _ in range(20)]
        assert {task.origin for [task] in claimed} <= {*ids[1::2]}

    play(scenario)


def test_a_claim_gets_the_task_that_others_have_left(play):
    async def scenario(writer):
        *others, left = await in_demand(writer)
        await sync_to_async(Task.objects.commit)(owner=ANN, deletes=others)
        assert [task.origin for task in await writer.submit(CLAIM)] == [left]
        assert await writer.submit(CLAIM) == []

    play(scenario)


def test_a_claim_gets_the_task_that_a_commit_beside_it_leaves(play):
    async def scenario(writer):
        *others, left = await in_demand(writer)
        _, claimed = await asyncio.gather(writer.submit(Commit(owner=ANN, deletes=tuple(others))), writer.submit(CLAIM))
        assert [task.origin for task in claimed] == [left]

    play(scenario)


@only_postgresql
def test_what_is_held_is_waited_for_on_the_side(play):
    async def scenario(writer):
        [task] = await writer.submit(ADD)
        async with held([task.id]):
            waiting = asyncio.ensure_future(writer.submit(Commit(owner=ANN, deletes=(task.id,))))
            await writer.submit(ADD)
            assert not waiting.done()
        assert await waiting == []

    play(scenario)


def run(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)


DYING = """
    CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END';
    CREATE TRIGGER dying BEFORE INSERT ON tasks_app_endedtask FOR EACH ROW EXECUTE FUNCTION die()
"""


@only_postgresql
def test_nothing_is_done_when_the_database_goes_while_it_writes(play):
    async def scenario(writer):
        [task] = await writer.submit(ADD)
        await sync_to_async(run)(DYING)
        try:
            with pytest.raises(StoreUnavailable):
                await writer.submit(Commit(owner=ANN, deletes=(task.id,)))
        finally:
            await sync_to_async(run)("DROP FUNCTION die CASCADE")
        assert await sync_to_async(Task.objects.groups)() == ["mail"]
        assert await writer.submit(Commit(owner=ANN, deletes=(task.id,))) == []

    play(scenario)
