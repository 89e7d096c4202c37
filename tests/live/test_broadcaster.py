"""The reader of the counts: when it works, what it sends, what it does when the database is away."""

import asyncio
import json
import time

import pytest
from channels.layers import get_channel_layer
from django.db import OperationalError

from tasks_app.counts import Counts
from tasks_app.live import broadcaster as module
from tasks_app.live.broadcaster import VIEWERS, Broadcaster, read_snapshot
from tasks_app.live.messages import Snapshot
from tasks_app.models import Task
from tasks_app.operations import NewTask

from .loop import in_event_loop

ANN = 1


class Store:
    """Counts that a test sets, and how often they were read."""

    def __init__(self, **groups: Counts) -> None:
        self.groups = groups
        self.is_down = False
        self.slowness_s = 0.0
        self.readings = 0

    def read(self) -> Snapshot:
        self.readings += 1
        time.sleep(self.slowness_s)
        if self.is_down:
            raise OperationalError("the database is away")
        return Snapshot(at_ms=1_000_000, read_at_s=time.monotonic(), groups=dict(self.groups))


class Viewer:
    """Somebody who listens to a broadcaster. Heartbeats are left out unless asked for."""

    def __init__(self, broadcaster: Broadcaster) -> None:
        self.broadcaster = broadcaster

    async def __aenter__(self) -> "Viewer":
        self.name = await get_channel_layer().new_channel()
        await get_channel_layer().group_add(VIEWERS, self.name)
        self.broadcaster.join(self.name)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.broadcaster.leave(self.name)
        await get_channel_layer().group_discard(VIEWERS, self.name)

    async def hears(self) -> dict:
        async with asyncio.timeout(5):
            event = await get_channel_layer().receive(self.name)
        [message] = map(json.loads, event["texts"])
        return dict(message)

    async def hears_counts(self) -> dict:
        while True:
            message = await self.hears()
            if "full" in message or "delta" in message:
                return message


@in_event_loop
async def test_the_first_message_has_the_counts_of_every_group():
    store = Store(mail=Counts(ready=3, claimed=2, expired=1, scheduled=5, failed=4), reports=Counts(ready=1))
    async with Viewer(Broadcaster(store.read)) as viewer:
        message = await viewer.hears_counts()
    assert message["full"] == {"mail": [3, 2, 1, 5, 4], "reports": [1, 0, 0, 0, 0]}
    assert message["at"] == 1_000_000


@in_event_loop
async def test_later_messages_have_only_what_changed():
    store = Store(mail=Counts(ready=3), reports=Counts(ready=1))
    async with Viewer(Broadcaster(store.read)) as viewer:
        first = await viewer.hears_counts()
        store.groups["mail"] = Counts(ready=2, claimed=1)
        second = await viewer.hears_counts()
    assert second["delta"] == {"mail": [2, 1, 0, 0, 0]}
    assert second["seq"] == first["seq"] + 1


@in_event_loop
async def test_it_tells_of_new_groups_and_of_those_that_are_gone():
    store = Store(mail=Counts(ready=3))
    async with Viewer(Broadcaster(store.read)) as viewer:
        await viewer.hears_counts()
        store.groups = {"reports": Counts(scheduled=1)}
        message = await viewer.hears_counts()
    assert message["delta"] == {"mail": None, "reports": [0, 0, 0, 1, 0]}


@in_event_loop
async def test_a_change_is_sent_within_a_second():
    store = Store(mail=Counts(ready=3))
    async with Viewer(Broadcaster(store.read)) as viewer:
        await viewer.hears_counts()
        store.groups["mail"] = Counts(ready=4)
        changed_at = time.monotonic()
        await viewer.hears_counts()
    assert time.monotonic() - changed_at < 1


@in_event_loop
async def test_without_a_change_only_heartbeats_are_sent():
    store = Store(mail=Counts(ready=3))
    async with Viewer(Broadcaster(store.read)) as viewer:
        first = await viewer.hears_counts()
        second = await viewer.hears()
    assert second.keys() == {"seq", "at", "age"}
    assert second["seq"] == first["seq"]
    assert 0 <= second["age"] < 1_000


@in_event_loop
async def test_it_reads_once_for_all_viewers():
    store = Store(mail=Counts(ready=3))
    broadcaster = Broadcaster(store.read)
    async with Viewer(broadcaster), Viewer(broadcaster) as bob:
        await bob.hears_counts()
        assert store.readings == 1


@in_event_loop
async def test_it_works_only_while_there_are_viewers():
    store = Store(mail=Counts(ready=3))
    broadcaster = Broadcaster(store.read)
    async with Viewer(broadcaster) as ann:
        async with Viewer(broadcaster):
            await ann.hears_counts()
        readings_with_bob = store.readings
        await asyncio.sleep(3 * module.TICK_S)
        assert store.readings > readings_with_bob
    readings_at_the_end = store.readings
    await asyncio.sleep(3 * module.TICK_S)
    assert store.readings == readings_at_the_end
    assert broadcaster.full() == []


@in_event_loop
async def test_it_starts_again_with_all_counts_for_a_viewer_who_comes_later():
    store = Store(mail=Counts(ready=3))
    broadcaster = Broadcaster(store.read)
    async with Viewer(broadcaster) as ann:
        await ann.hears_counts()
    async with Viewer(broadcaster) as bob:
        assert (await bob.hears_counts())["full"] == {"mail": [3, 0, 0, 0, 0]}


@in_event_loop
async def test_it_reads_at_most_four_times_a_second():
    store = Store(mail=Counts(ready=3))
    async with Viewer(Broadcaster(store.read)):
        await asyncio.sleep(1)
    assert 2 <= store.readings <= 5


@in_event_loop
async def test_it_asks_a_slow_database_less_often():
    store = Store(mail=Counts(ready=3))
    store.slowness_s = 0.8
    async with Viewer(Broadcaster(store.read)):
        await asyncio.sleep(2.2)  # Without a rest the third reading would begin after 1.6 s.
    assert store.readings == 2


@in_event_loop
async def test_viewers_see_the_counts_grow_old_while_the_database_is_away(caplog):
    store = Store(mail=Counts(ready=3))
    async with Viewer(Broadcaster(store.read)) as viewer:
        await viewer.hears_counts()
        store.is_down = True
        _, one, other = await viewer.hears(), await viewer.hears(), await viewer.hears()
    assert other.keys() == {"seq", "at", "age"}
    assert other["at"] == one["at"]
    assert other["age"] >= one["age"] + 900
    assert len([record for record in caplog.records if record.name == module.__name__]) == 1


@in_event_loop
async def test_new_counts_come_by_themselves_when_the_database_is_back():
    store = Store(mail=Counts(ready=3))
    async with Viewer(Broadcaster(store.read)) as viewer:
        await viewer.hears_counts()
        store.is_down = True
        await viewer.hears()
        store.is_down, store.groups = False, {"mail": Counts(ready=9)}
        message = await viewer.hears_counts()
    assert message["delta"] == {"mail": [9, 0, 0, 0, 0]}


@in_event_loop
async def test_heartbeats_come_also_when_the_database_was_never_there():
    store = Store()
    store.is_down = True
    async with Viewer(Broadcaster(store.read)) as viewer:
        assert await viewer.hears() == {"seq": 0}


@pytest.mark.usefixtures("transactional_db")
def test_it_reads_what_the_store_holds():
    before_ms = Task.objects.now_ms()
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=b"1"), NewTask(group="reports")])
    Task.objects.claim("mail", owner=ANN)
    snapshot = read_snapshot()
    assert snapshot.groups == {"mail": Counts(claimed=1), "reports": Counts(ready=1)}
    assert snapshot.at_ms >= before_ms
