"""The reader of the counts: when it works, what it sends, what it does when the database is away."""

import asyncio
import json
import time
from collections.abc import Collection

from django.db import OperationalError

from tasks_app.live import broadcaster as module
from tasks_app.live.broadcaster import Broadcaster
from tasks_app.live.messages import Snapshot, Watch
from tasks_app.writer.totals import Numbers, Part, Summary
from taskstore.types.tasks import State

from .loop import in_event_loop

ANN = 1


class Store:
    """Counts that a test sets, and how often they were read."""

    def __init__(self, **groups: Numbers) -> None:
        self.groups = groups
        self.is_down = self.is_broken = False
        self.slowness_s = 0.0
        self.readings = self.sums = 0

    def read(self, groups: Collection[str]) -> Snapshot:
        self.readings += 1
        self.asked = groups
        time.sleep(self.slowness_s)
        if self.is_down:
            raise OperationalError("the database is away")
        if self.is_broken:
            raise ZeroDivisionError("of all things")
        return Snapshot(
            at_ms=1_000_000,
            read_at_s=time.monotonic(),
            groups={group: counts for group, counts in self.groups.items() if group in groups},
        )

    def add_up(self, part: Part) -> Summary:
        self.sums += 1
        time.sleep(self.slowness_s)
        found = [counts for group, counts in self.groups.items() if group.startswith(part.prefix)]
        ready = sum(counts.ready for counts in found)
        return Summary(Numbers(tasks=ready), len(found), 1_000_000, dict.fromkeys(State, 1))


PAGE = Watch(groups=frozenset({"mail", "reports"}))


class Viewer:
    """Somebody who listens to a broadcaster, on a page that shows two groups."""

    def __init__(self, broadcaster: Broadcaster, page: Watch = PAGE) -> None:
        self.broadcaster = broadcaster
        self.viewer = module.Viewer()
        self.page = page

    async def __aenter__(self) -> "Viewer":
        self.broadcaster.join(self.viewer)
        self.broadcaster.show(self.viewer, self.page)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.broadcaster.leave(self.viewer)

    async def hears(self) -> dict:
        async with asyncio.timeout(5):
            return dict(json.loads(await self.viewer.next()))

    async def hears_counts(self) -> dict:
        while True:
            message = await self.hears()
            if "full" in message or "delta" in message:
                return message


@in_event_loop
async def test_without_a_change_only_heartbeats_are_sent():
    store = Store(mail=Numbers(tasks=3))
    async with Viewer(Broadcaster(store.read)) as viewer:
        first = await viewer.hears_counts()
        second = await viewer.hears()
    assert second.keys() == {"seq", "at", "age"}
    assert second["seq"] == first["seq"]
    assert 0 <= second["age"] < 1_000


@in_event_loop
async def test_it_reads_once_for_all_viewers():
    store = Store(mail=Numbers(tasks=3))
    broadcaster = Broadcaster(store.read)
    async with Viewer(broadcaster), Viewer(broadcaster) as bob:
        await bob.hears_counts()
        assert store.readings == 1


@in_event_loop
async def test_it_works_only_while_there_are_viewers():
    store = Store(mail=Numbers(tasks=3))
    broadcaster = Broadcaster(store.read)
    async with Viewer(broadcaster) as ann:
        async with Viewer(broadcaster):
            await ann.hears_counts()
        readings_with_bob = store.readings
        await asyncio.sleep(3 * module.TICK_S)
        assert store.readings > readings_with_bob
    await asyncio.sleep(3 * module.TICK_S)  # A reading that had begun ends in its thread.
    readings_at_the_end = store.readings
    await asyncio.sleep(3 * module.TICK_S)
    assert store.readings == readings_at_the_end
    assert broadcaster.viewers == 0


@in_event_loop
async def test_it_reads_at_most_four_times_a_second():
    store = Store(mail=Numbers(tasks=3))
    async with Viewer(Broadcaster(store.read)):
        await asyncio.sleep(1)
    assert 2 <= store.readings <= 5


@in_event_loop
async def test_it_asks_a_slow_database_less_often():
    store = Store(mail=Numbers(tasks=3))
    store.slowness_s = 0.8
    async with Viewer(Broadcaster(store.read)):
        await asyncio.sleep(2.2)  # Without a rest the third reading would begin after 1.6 s.
    assert store.readings == 2


@in_event_loop
async def test_viewers_see_the_counts_grow_old_while_the_database_is_away(caplog):
    store = Store(mail=Numbers(tasks=3))
    async with Viewer(Broadcaster(store.read)) as viewer:
        await viewer.hears_counts()
        store.is_down = True
        _, one, other = await viewer.hears(), await viewer.hears(), await viewer.hears()
    assert other.keys() == {"seq", "at", "age"}
    assert other["at"] == one["at"]
    assert other["age"] >= one["age"] + 900
    assert caplog.messages == []  # An outage has lines of its own, which this part of the server does not write.


@in_event_loop
async def test_new_counts_come_by_themselves_when_the_database_is_back():
    store = Store(mail=Numbers(tasks=3))
    async with Viewer(Broadcaster(store.read)) as viewer:
        await viewer.hears_counts()
        store.is_down = True
        await viewer.hears()
        store.is_down, store.groups = False, {"mail": Numbers(tasks=9)}
        message = await viewer.hears_counts()
    assert message["delta"] == {"groups": {"mail": [9, 0, 0, 0, 0, 0, 0, 0]}}


@in_event_loop
async def test_a_new_page_does_not_wait_for_the_next_tick(monkeypatch):
    monkeypatch.setattr(module, "TICK_S", 3_600.0)
    store = Store(mail=Numbers(tasks=3), letters=Numbers(tasks=1))
    broadcaster = Broadcaster(store.read)
    async with Viewer(broadcaster) as ann:
        await ann.hears_counts()
        async with Viewer(broadcaster, Watch(groups=frozenset({"letters"}))) as bob:
            assert (await bob.hears_counts())["full"] == {"groups": {"letters": [1, 0, 0, 0, 0, 0, 0, 0]}}


@in_event_loop
async def test_heartbeats_come_also_when_the_database_was_never_there():
    store = Store()
    store.is_down = True
    async with Viewer(Broadcaster(store.read)) as viewer:
        assert await viewer.hears() == {"seq": 0}


@in_event_loop
async def test_totals_and_folders_come_when_they_are_added_up():
    store = Store(**{"mail/in": Numbers(tasks=3), "reports": Numbers(tasks=1)})
    page = Watch(folders=frozenset({"mail/"}), totals=True)
    content: dict = {}
    async with Viewer(Broadcaster(store.read, store.add_up), page) as viewer:
        while not {"folders", "total"} <= content.keys():
            message = await viewer.hears_counts()
            content |= message.get("full", {}) | message.get("delta", {})
    assert content["folders"] == {"mail/": [1, 3, 0, 0, 0, 0, 0, 0, 0]}
    assert content["total"] == [4, 0, 0, 0, 0, 0, 0, 0]
    assert content["holding"] == [2, 1, 1, 1, 1, 1, 1, 1]
    assert (content["found"], content["summed"]) == (2, 1_000_000)


@in_event_loop
async def test_a_page_that_reads_slowly_gets_all_counts_once():
    store = Store(mail=Numbers(tasks=3))
    broadcaster = Broadcaster(store.read, store.add_up)
    async with Viewer(broadcaster) as slow, Viewer(broadcaster) as quick:
        await slow.hears_counts()
        await quick.hears_counts()
        for ready in (4, 5, 6):
            store.groups["mail"] = Numbers(tasks=ready)
            assert (await quick.hears_counts())["delta"]["groups"]["mail"][0] == ready
        message = await slow.hears_counts()
    assert message["full"]["groups"]["mail"][0] == 6


@in_event_loop
async def test_who_asks_again_and_again_gets_all_counts_once_a_second():
    store = Store(mail=Numbers(tasks=3))
    broadcaster = Broadcaster(store.read, store.add_up)
    async with Viewer(broadcaster) as viewer:
        await viewer.hears_counts()
        began_s = time.monotonic()
        for _ in range(2_000):
            broadcaster.show(viewer.viewer, PAGE)
        await viewer.hears_counts()
        assert time.monotonic() - began_s > 0.8
        assert "full" not in await viewer.hears()
