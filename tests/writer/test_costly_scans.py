"""Where scans take long, because somebody holds an old snapshot, they begin at a mark, and nothing stays unfound."""

import time

import pytest
from asgiref.sync import sync_to_async

from tasks_app import database
from tasks_app.core.operations import Claim, Commit
from tasks_app.database import claim_pools, postgresql_claims
from tasks_app.database.claim_pools import NO_MARK_MS, Pools
from taskstore.types.tasks import NewTask, Order
from tests.behaviour.databases import only_postgresql
from tests.behaviour.people import ANN, BOB

pytestmark = only_postgresql

NUMBER = 40
OLD_MS = 1  # A time long ago.


@pytest.fixture
def scans_take(monkeypatch):
    """Sets how many milliseconds each scan says that it has taken. Each batch forgets all but where scans begin."""
    monkeypatch.setattr(claim_pools, "KEPT_S", -1.0)
    return lambda took_ms: monkeypatch.setattr(postgresql_claims, "TOOK_MS", f"CAST({took_ms} AS bigint)")


async def begin(writer):
    tasks = await writer.submit(Commit(owner=ANN, adds=tuple(NewTask(group="mail") for _ in range(NUMBER))))
    for _ in range(2):
        await writer.submit(claim())
    return tasks


def claim(limit=1):
    return Claim(groups=("mail",), owner=BOB, limit=limit, order=Order.OLDEST)


async def add_elsewhere(**members):
    """As another process does: its own scans are none of this writer's."""
    add = sync_to_async(database.run, thread_sensitive=False)
    [task] = await add(Commit(owner=ANN, adds=(NewTask(group="mail", **members),)), "default")
    return task.id


def marks(writer):
    return writer._connection.dialect.pools


@pytest.mark.parametrize(("took_ms", "is_kept"), [(0, False), (5, False), (600, True)])
def test_only_costly_scans_leave_a_mark(play, scans_take, took_ms, is_kept):
    async def scenario(writer):
        scans_take(took_ms)
        tasks = await begin(writer)
        marks(writer)._pools.clear()
        mark_ms = marks(writer).mark_of("mail")
        assert (mark_ms > NO_MARK_MS) is is_kept
        assert mark_ms < min(task.available_at_ms for task in tasks)

    play(scenario)


@pytest.mark.parametrize("left", [0, 5])
def test_an_old_task_that_another_process_adds_is_found_after_a_while(play, scans_take, left):
    async def scenario(writer):
        scans_take(600)
        await begin(writer)
        old = await add_elsewhere(timespec_ms=OLD_MS)
        others = [task.origin for _ in range(NUMBER - 2 - left) for task in await writer.submit(claim())]
        assert len(set(others)) == NUMBER - 2 - left
        assert old not in others
        mark_ms, _ = marks(writer)._starts["mail"]
        marks(writer)._starts["mail"] = mark_ms, time.monotonic() - claim_pools.LATER_S
        found = [task.origin for _ in range(3) for task in await writer.submit(claim())]
        assert old in found

    play(scenario)


def test_what_is_added_here_and_what_has_a_higher_priority_is_found_at_once(play, scans_take):
    async def scenario(writer):
        scans_take(600)
        await begin(writer)
        [old] = await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail", timespec_ms=OLD_MS),)))
        assert [task.origin for task in await writer.submit(claim())] == [old.id]
        urgent = await add_elsewhere(priority=9)
        assert [task.origin for task in await writer.submit(claim())] == [urgent]

    play(scenario)


def test_a_scan_from_a_mark_tells_nothing_about_the_cost_of_whole_ones():
    pools = Pools()
    pools.note_cost("mail", NO_MARK_MS, 600, 1_000_000)
    pools.note_cost("mail", 995_000, 0, 2_000_000)
    assert pools.start_of("mail") == 2_000_000 - claim_pools.MARGIN_MS
    pools.note_cost("mail", NO_MARK_MS, 0, 2_000_000)
    assert pools.start_of("mail") == NO_MARK_MS
