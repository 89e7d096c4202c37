"""Claims that wait until there is something."""

import asyncio
import json
import sqlite3
import time
from contextlib import closing

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from tasks_app import database, managers
from tasks_app.control import pauses
from tasks_app.control.cancelling import cancel
from tasks_app.core.operations import Claim, Commit, Query, Supply
from tasks_app.database import dialect_of
from tasks_app.models import Client, Task
from tasks_app.writer import peers, waiting_claims
from tasks_app.writer import writer as writer_module
from tasks_app.writer.connection import ended
from taskstore.errors import CommitRefused
from taskstore.types.groups import LATE_MS
from taskstore.types.limits import Rate
from taskstore.types.tasks import NewTask
from tests.behaviour.databases import only_sqlite
from tests.behaviour.people import ANN, BOB

LONG_MS = 30_000


def adding(group="mail", **more):
    return Commit(owner=ANN, adds=(NewTask(group=group, **more),))


def claiming(*groups, wait_ms=LONG_MS, **more):
    return Claim(groups=groups or ("mail",), owner=BOB, wait_ms=wait_ms, **more)


async def parked(writer, claim):
    """The claim, when it waits."""
    count = len(writer._waiting)
    asked = asyncio.ensure_future(writer.submit(claim))
    await waiting(writer, count + 1)
    return asked


async def waiting(writer, count):
    """Return when so many claims wait. The writer has no event for that: nobody but a test wants to know."""
    while len(writer._waiting) != count:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_the_time_of_a_scheduled_task_wakes_it(play):
    async def scenario(writer):
        await writer.submit(adding(timespec_ms=-300))
        assert len(await writer.submit(claiming())) == 1

    play(scenario)


def test_the_end_of_a_lease_wakes_it(play):
    async def scenario(writer):
        await writer.submit(adding())
        [leased] = await writer.submit(claiming(duration_ms=300))
        [again] = await writer.submit(claiming())
        assert (again.origin, again.claims) == (leased.origin, 2)

    play(scenario)


def test_a_commit_beside_the_writer_wakes_it(play):
    async def scenario(writer):
        waits = await parked(writer, claiming())
        await sync_to_async(database.run)(adding())
        assert len(await asyncio.wait_for(waits, timeout=5)) == 1

    play(scenario)


@pytest.mark.parametrize(("age_ms", "is_dropped"), [(LATE_MS + 1_000, True), (LATE_MS - 20_000, False)])
def test_a_client_that_is_silent_for_three_heartbeats_gets_nothing(play, age_ms, is_dropped):
    """It may be stopped, and would hold the task until its lease ends."""

    def say(owner: int, at_ms: int) -> None:
        Client(id=owner, name="ann", host="", groups=[], version="", info="{}", seen_at_ms=at_ms).save()

    async def scenario(writer):
        now_ms = await sync_to_async(Task.objects.now_ms)()
        waits = await parked(writer, claiming())
        await sync_to_async(say)(claiming().owner, now_ms - age_ms)
        if is_dropped:
            assert await asyncio.wait_for(waits, timeout=5) == []
        else:
            await asyncio.sleep(1.5)
            await writer.submit(adding())
            assert len(await asyncio.wait_for(waits, timeout=5)) == 1

    play(scenario)


def test_what_it_takes_while_its_time_ends_is_its(play, monkeypatch):
    """The transaction is slow: to say that there was nothing would leave the task to a lease that nobody knows of."""

    async def scenario(writer):
        waits, loop = await parked(writer, claiming()), asyncio.get_running_loop()
        run = writer._connection.run

        async def run_until_its_time_is_over(steps, **options):
            done = await run(steps, **options)
            with monkeypatch.context() as patch:
                patch.setattr(loop, "time", lambda: time.monotonic() + LONG_MS / 1000)
                for _ in range(3):  # Until what is due then was done.
                    await asyncio.sleep(0)
            return done

        await sync_to_async(database.run)(adding())
        monkeypatch.setattr(writer._connection, "run", run_until_its_time_is_over)
        writer.look_around()
        assert len(await waits) == 1

    play(scenario)


@only_sqlite
def test_it_is_woken_after_a_look_that_a_lock_kept_out(play, rollback_journal, monkeypatch):
    async def scenario(writer):
        waits, kept_out = await parked(writer, claiming()), asyncio.Event()
        read = writer._connection.read

        async def seen_to_fail(steps):
            try:
                return await read(steps)
            except Exception:
                kept_out.set()
                raise

        monkeypatch.setattr(writer._connection, "read", seen_to_fail)
        with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            writer.look_around()
            await kept_out.wait()
            other.execute("COMMIT")
        await sync_to_async(database.run)(adding())
        assert len(await asyncio.wait_for(waits, timeout=5)) == 1

    play(scenario)


def test_the_longest_waiting_is_first(play):
    async def scenario(writer):
        first, second = await parked(writer, claiming()), await parked(writer, claiming())
        await writer.submit(adding())
        assert len(await first) == 1
        assert not second.done()

    play(scenario)


def test_many_are_woken_and_none_gets_what_another_got(play):
    async def scenario(writer):
        waits = [asyncio.ensure_future(writer.submit(claiming())) for _ in range(500)]
        await waiting(writer, 500)
        await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"),) * 500))
        answers = await asyncio.gather(*waits)
        assert len({task.id for [task] in answers}) == 500
        assert len(writer._waiting) == 0

    play(scenario)


def test_what_there_is_is_shared_among_those_who_wait(play):
    """Each waits for many, and would keep the others idle."""

    async def scenario(writer):
        waits = [await parked(writer, claiming(limit=100)) for _ in range(3)]
        await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"),) * 10))
        assert sorted([len(await each) for each in waits]) == [2, 4, 4]
        alone = await parked(writer, claiming(limit=100))
        await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"),) * 10))
        assert len(await alone) == 10

    play(scenario)


def test_who_waits_again_asks_for_as_much_as_before(play):
    async def scenario(writer):
        first, second = [await parked(writer, claiming(limit=9)) for _ in range(2)]
        writer._waiting.note(Supply(available={"mail": 2}, next_in_ms={}, gone=frozenset()))  # Others have taken it.
        await waiting(writer, 2)
        second.cancel()
        await waiting(writer, 1)
        await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"),) * 9))
        assert len(await first) == 9

    play(scenario)


@pytest.mark.parametrize("claim", [Claim(groups=("mail",), owner=BOB), Query(groups=("mail",), duration_ms=LONG_MS)])
def test_who_goes_while_the_transaction_is_under_way_takes_nothing(play, monkeypatch, claim):
    async def scenario(writer):
        [added] = await writer.submit(adding())
        asked = asyncio.ensure_future(writer.submit(claim))
        run = writer._connection.run

        async def run_until_they_go(steps, **options):
            done = await run(steps, **options)
            asked.cancel()
            return done

        with monkeypatch.context() as patch:
            patch.setattr(writer._connection, "run", run_until_they_go)
            with pytest.raises(asyncio.CancelledError):
                await asked
        [again] = await writer.submit(claiming())
        assert again.origin == added.id

    play(scenario)


def test_it_ends_when_that_goes_beside_the_writer(play):
    async def scenario(writer):
        [config] = await writer.submit(adding("config"))
        waits = await parked(writer, claiming(depends=(config.id,)))
        await sync_to_async(database.run)(Commit(owner=ANN, deletes=(config.id,)))
        with pytest.raises(CommitRefused):
            await asyncio.wait_for(waits, timeout=5)

    play(scenario)


# ---- Tasks of the loop end when they are told to, whatever they wait for


def test_a_task_ends_that_lost_its_first_cancellation():
    lost: list[bool] = []

    async def forgetful():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if lost:
                    raise
                lost.append(True)

    async def story():
        tasks = [asyncio.create_task(forgetful()) for _ in range(3)]
        await asyncio.sleep(0)  # Each waits now.
        await asyncio.wait_for(ended(*tasks), timeout=20)
        return [task.cancelled() for task in tasks]

    assert asyncio.run(story()) == [True] * 3
    assert lost


def test_nothing_is_ended_at_once():
    asyncio.run(asyncio.wait_for(ended(), timeout=20))


# ---- In groups with limits


def test_the_end_of_a_lease_frees_a_slot_for_who_waits(play, monkeypatch):
    monkeypatch.setattr("tasks_app.writer.waiting_claims.LOOK_EVERY_S", 60)  # No look finds it by chance.

    async def scenario(writer):
        await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"),) * 3))
        await sync_to_async(Task.objects.set_limits)("mail", running=1)
        [held] = await writer.submit(claiming())
        waits = await parked(writer, claiming())
        begun = writer.begun
        await asyncio.sleep(0.3)
        assert writer.begun - begun <= 1  # It does not try again and again, though there are tasks.
        await writer.submit(Commit(owner=BOB, deletes=(held.id,)))
        assert len(await asyncio.wait_for(waits, timeout=5)) == 1

    play(scenario)


def test_who_waits_for_a_rate_is_woken_when_it_allows_more(play):
    async def scenario(writer):
        await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"),) * 3))
        await sync_to_async(Task.objects.set_limits)("mail", rate=Rate(1, 300))
        began_s = time.monotonic()
        for _ in range(3):
            assert len(await writer.submit(claiming())) == 1
        assert 0.6 <= time.monotonic() - began_s < 1.6

    play(scenario)


def test_a_limit_that_is_removed_lets_those_who_wait_go_on(play):
    async def scenario(writer):
        await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"),) * 2))
        await sync_to_async(Task.objects.set_limits)("mail", running=1)
        await writer.submit(claiming())
        waits = await parked(writer, claiming())
        await sync_to_async(Task.objects.remove_limits)("mail")
        assert len(await asyncio.wait_for(waits, timeout=5)) == 1

    play(scenario)


FREED = {
    "the limit is raised": lambda held: Task.objects.set_limits("mail", running=2),
    "the limit is removed": lambda held: Task.objects.remove_limits("mail"),
    "the limit is by another label": lambda held: Task.objects.set_limits("mail", running=1, by="tenant"),
    "a slot is free": lambda held: cancel([held.id]),
    "it holds the group no longer": lambda held: pauses.resume("mail"),
}


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["here", "in another process"])
@pytest.mark.parametrize("what", FREED)
def test_it_wakes_when(play, monkeypatch, what, is_elsewhere):
    """Without the look that waiting claims take anyway from time to time."""
    if is_elsewhere and connection.vendor == "sqlite":
        pytest.skip("one process serves")
    monkeypatch.setattr(waiting_claims, "LOOK_EVERY_S", LONG_MS)

    def change(held):
        with monkeypatch.context() as patched:
            if is_elsewhere:
                patched.setattr(peers, "_payload", lambda groups: json.dumps({"from": "", "groups": list(groups)}))
                patched.setattr(managers, "running", lambda using: None)
                patched.setattr(writer_module, "running", lambda using: None)
            FREED[what](held)

    async def scenario(writer):
        await writer.submit(adding(labels={"tenant": "acme"}))
        await sync_to_async(Task.objects.set_limits)("mail", running=1)
        [held] = await writer.submit(claiming())
        await writer.submit(adding(labels={"tenant": "duck"}))
        if "holds" in what:
            await sync_to_async(Task.objects.remove_limits)("mail")
            await sync_to_async(pauses.pause)("mail")
        waits = await parked(writer, claiming())
        await listening(writer)
        await sync_to_async(change)(held)
        assert len(await asyncio.wait_for(waits, timeout=10)) == 1

    play(scenario)


async def listening(writer):
    """Return when the writer hears what other processes tell."""
    if writer._neighbours:
        # What it asks once it listens.
        sql = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
        sql += " AND query LIKE '%%pg_stat_activity%%'"
        while not await sync_to_async(dialect_of().rows)(sql, [peers.LISTENER]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
