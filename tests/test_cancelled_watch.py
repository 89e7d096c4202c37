"""Polls of a worker for its cancelled tasks: one look for all, and each is woken only by what is its own."""

import asyncio
import time

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from tasks_app.control import cancelling
from tasks_app.control.cancelling import Watch
from tasks_app.core.operations import GroupScope
from tasks_app.models import CancelledTask, Task
from tasks_app.writer.peers import readiness

NOW_MS = 1_800_000_000_000


class Looks:
    """In place of the database."""

    def __init__(self, monkeypatch):
        self.number, self.found, self.error = 0, [], None
        monkeypatch.setattr(cancelling, "LOOK_EVERY_S", 0.05)
        monkeypatch.setattr(cancelling, "recently_cancelled", self.look)

    def look(self):
        self.number += 1
        if self.error:
            raise self.error
        time.sleep(0.01)
        return NOW_MS, list(self.found)

    def cancel(self, task_id, owner, group="mail"):
        self.found.append((task_id, NOW_MS, owner, group))


@pytest.fixture
def looks(monkeypatch) -> Looks:
    return Looks(monkeypatch)


async def parked(watch, polls):
    polls = [asyncio.ensure_future(poll) for poll in polls]
    await asyncio.sleep(0.1)
    return polls


def test_one_look_serves_all_who_ask_at_once(looks):
    async def scenario():
        watch = Watch()
        looks.cancel(3, owner=1)
        answers = await asyncio.gather(*(watch.cancelled(owner, "", 0) for owner in range(500)))
        assert [answer.ids for answer in answers if answer.ids] == [(3,)]

    asyncio.run(scenario())
    assert looks.number == 1


def test_who_asks_during_a_look_gets_the_next_one(looks):
    async def scenario():
        watch = Watch()
        first = asyncio.ensure_future(watch.cancelled(1, "", 0))
        await asyncio.sleep(0.005)
        looks.cancel(3, owner=1)
        assert (await watch.cancelled(1, "", 0)).ids == (3,)
        await first

    asyncio.run(scenario())
    assert looks.number == 2


def test_a_cancelled_task_wakes_its_client_alone(looks):
    async def scenario():
        watch = Watch()
        mine, other, elsewhere = await parked(
            watch,
            [
                watch.cancelled(1, "", 5_000),
                watch.cancelled(2, "", 1_500),
                watch.cancelled(1, "", 1_500, GroupScope(("video",))),
            ],
        )
        looks.cancel(3, owner=1)
        assert (await mine).ids == (3,)
        assert not other.done()
        assert (await other).ids == (await elsewhere).ids == ()
        again = await watch.cancelled(1, (await mine).after, 100)
        assert again.ids == ()

    asyncio.run(scenario())


@pytest.mark.parametrize("after", ["", "x", "-", "{0}-", "{0}-x", "{0}-" + "9" * 5_000, "{0}-²"])
def test_any_text_stands_for_a_place(looks, after):
    async def scenario():
        watch = Watch()
        looks.cancel(3, owner=1)
        name = (await watch.cancelled(1, "", 0)).after.partition("-")[0]
        await watch.cancelled(1, after.format(name), 0)

    asyncio.run(scenario())


def test_nobody_looks_while_nobody_waits(looks):
    async def scenario():
        watch = Watch()
        await watch.cancelled(1, "", 60)
        await asyncio.sleep(0.1)
        before = looks.number
        await asyncio.sleep(0.2)
        assert looks.number == before

    asyncio.run(scenario())


def test_who_goes_away_leaves_nothing(looks):
    async def scenario():
        watch = Watch()
        [poll] = await parked(watch, [watch.cancelled(1, "", 5_000)])
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        [waiting] = watch._waiting.values()
        assert waiting.clients == {}

    asyncio.run(scenario())


def test_an_error_of_a_look_is_told_to_all_who_wait_and_the_next_ones_wait_again(looks):
    async def scenario():
        watch = Watch()
        polls = await parked(watch, [watch.cancelled(owner, "", 5_000) for owner in (1, 1, 2)])
        looks.error = OSError("away")
        for poll in polls:
            with pytest.raises(OSError, match="away"):
                await poll
        looks.error = None
        [poll] = await parked(watch, [watch.cancelled(1, "", 5_000)])
        looks.cancel(3, owner=1)
        assert (await poll).ids == (3,)

    asyncio.run(scenario())


def test_a_server_that_stops_answers_all(looks, monkeypatch):
    async def scenario():
        watch = Watch()
        polls = await parked(watch, [watch.cancelled(owner, "", 5_000) for owner in (1, 2)])
        monkeypatch.setattr(readiness, "is_withdrawn", True)
        assert [answer.ids for answer in await asyncio.wait_for(asyncio.gather(*polls), 2)] == [(), ()]

    asyncio.run(scenario())


@pytest.mark.django_db(transaction=True)
def test_each_loop_wakes_its_own(monkeypatch):
    async def scenario(watch):
        poll = asyncio.ensure_future(watch.cancelled(1, "", 5_000))
        await asyncio.sleep(0.1)
        await sync_to_async(cancel)()
        assert (await poll).ids
        await sync_to_async(connections.close_all)()

    def cancel():
        at_ms = Task.objects.now_ms()
        CancelledTask.objects.create(id=at_ms, owner=1, at_ms=at_ms, group="mail")
        connections.close_all()

    monkeypatch.setattr(cancelling, "LOOK_EVERY_S", 0.05)
    watch = Watch()
    asyncio.run(scenario(watch))
    CancelledTask.objects.all().delete()
    asyncio.run(scenario(watch))
