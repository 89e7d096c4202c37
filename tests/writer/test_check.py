"""Whether a server process could write something now."""

import asyncio

import pytest
from asgiref.sync import sync_to_async

from tasks_app.models import KeptAnswer, Task
from taskstore.errors import StoreUnavailable


async def check() -> None:
    await sync_to_async(Task.objects.check_writable, thread_sensitive=False)()


def test_a_store_that_can_be_written_has_no_trace_of_the_check(play):
    async def scenario(writer):
        await asyncio.gather(*(check() for _ in range(5)))
        assert not await KeptAnswer.objects.aexists()

    play(scenario)


def test_a_writer_that_has_ended_is_named(play):
    async def scenario(writer):
        at_work = writer._work_task
        writer._work_task = asyncio.get_running_loop().create_future()
        writer._work_task.set_result(None)
        try:
            with pytest.raises(StoreUnavailable, match="the writer of this server process has ended"):
                await check()
        finally:
            writer._work_task = at_work
        await check()

    play(scenario)


def test_a_database_that_can_not_be_written_says_why(play):
    async def scenario(writer):
        def refuse():
            raise StoreUnavailable("the disk of the database is full: try again later")
            yield

        dialect = writer._housekeeper.connection.dialect
        dialect.probe = refuse
        with pytest.raises(StoreUnavailable, match="disk of the database is full"):
            await check()
        del dialect.probe
        writer._checked_s = 0.0  # The answer is kept for a second.
        await check()

    play(scenario)
