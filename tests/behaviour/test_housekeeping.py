"""What is old goes, in small steps; what is not stays."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from django.db import connection, transaction

from tasks_app import bulk
from tasks_app.core.actors import Actor
from tasks_app.core.operations import Claim, Commit, ResendKey
from tasks_app.core.tally import counter_in
from tasks_app.database import HOUSEKEEPING_LOCK, SILENCE_S, dialect_of
from tasks_app.database.rows import PAYLOAD_BYTES
from tasks_app.models import BulkItem, BulkOperation, EndedTask, KeptAnswer, KeptPayload, Payload, Rate, Task
from tasks_app.reading.history import chain_of
from tasks_app.writer import background, housekeeping, totals
from tasks_app.writer.connection import SQLiteConnection
from tasks_app.writer.housekeeping import DAY_MS, Housekeeper, chores
from taskstore.errors import StoreUnavailable
from taskstore.types.tasks import Change, NewTask, Order

from .databases import only_postgresql
from .people import ANN

START_MS = 2_000_000 * DAY_MS // 100  # A full minute, ten minutes, hour and day.


pytestmark = pytest.mark.usefixtures("days_made_anew")


@pytest.fixture
def small_steps(monkeypatch):
    monkeypatch.setattr(housekeeping, "STEP", 2)


def keep_house() -> int:
    """Do all chores to their end. Returns how many steps it took."""
    steps = 0
    dialect = dialect_of("default")
    for chore in chores(dialect):
        is_more = True
        while is_more:
            with transaction.atomic():
                is_more = dialect.drive(totals.when_elected(chore, dialect))
            steps += 1
    return steps


def end(count: int = 1) -> list[int]:
    """Add and delete so many tasks. Returns their ids."""
    tasks = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * count)
    Task.objects.commit(owner=ANN, deletes=[task.id for task in tasks])
    return [task.id for task in tasks]


def test_history_goes_after_its_days_and_not_before(clock, settings, small_steps):
    settings.TASKSTORE_HISTORY_DAYS = 3
    old = end(5)
    clock.advance(2 * DAY_MS)
    [young] = end()
    clock.advance(DAY_MS)
    keep_house()
    assert EndedTask.objects.count() == 6
    clock.advance(DAY_MS + 1)  # On PostgreSQL a whole day goes when its last row is old.
    keep_house()
    assert list(EndedTask.objects.values_list("id", flat=True)) == [young]
    assert chain_of(old[0]) is None


def test_what_has_lain_in_a_group_for_its_time_is_deleted_and_what_is_leased_or_young_is_not(
    clock, settings, monkeypatch
):
    monkeypatch.setattr(housekeeping, "STEP_OF_TASKS", 2)
    settings.TASKSTORE_RETENTION = "jobs/keep/*=forever jobs/*/succeeded=7d"
    old = add("jobs/mail/succeeded", 5)
    others = [*add("jobs/keep/succeeded"), *add("jobs/mail/failed"), *add("jobs/mail")]
    [held] = Task.objects.claim("jobs/mail/succeeded", owner=ANN, duration_ms=30 * DAY_MS)
    totals.fold_here()
    clock.advance(7 * DAY_MS)
    young = add("jobs/mail/succeeded")
    keep_house()
    assert Task.objects.count() == 9
    clock.advance(1)
    steps = keep_house()
    left = set(Task.objects.values_list("id", flat=True))
    assert left == {held.id, *others, *young}
    assert steps >= len(chores(dialect_of("default"))) + 1
    [gone] = EndedTask.objects.filter(id=next(iter({*old} - {held.origin})))
    assert (gone.ending, gone.operator) == ("deleted", "retention")
    assert gone.reason == "jobs/*/succeeded is kept for 7d"


def add(group: str, count: int = 1) -> list[int]:
    return [task.id for task in Task.objects.commit(owner=ANN, adds=[NewTask(group=group)] * count)]


def test_it_takes_small_steps(clock, monkeypatch):
    for number in range(20):
        Task.objects.perform(commit_with_key(f"number {number}"))
    clock.advance(8 * DAY_MS)
    monkeypatch.setattr(housekeeping, "STEP", 4)
    assert keep_house() >= 5 + len(chores(dialect_of("default")))


def test_kept_answers_go_after_their_time(clock, settings, small_steps):
    settings.TASKSTORE_KEY_SECONDS = 60
    for number in range(5):
        Task.objects.perform(commit_with_key(f"old {number}"))
    clock.advance(60_000)
    Task.objects.perform(commit_with_key("young"))
    keep_house()
    assert KeptAnswer.objects.count() == 6
    clock.advance(1)
    keep_house()
    assert [kept.key for kept in KeptAnswer.objects.all()] == ["young"]


def commit_with_key(key: str) -> Commit:
    return Commit(owner=ANN, adds=(NewTask(group="mail"),), key=ResendKey(key, "digest"))


def rates() -> list[tuple[int, int, int, int]]:
    return list(Rate.objects.order_by("minute").values_list("minutes", "minute", "entered", "left"))


def counted(histogram: str, rate: Rate) -> int:
    return counter_in(getattr(rate, histogram)).total()


def test_what_an_operation_replaced_is_kept_for_as_long_as_it_can_be_undone(clock, small_steps):
    purge = purge_all(5)
    clock.advance(7 * DAY_MS)
    keep_house()
    assert BulkItem.objects.count() == 5
    assert bulk.why_not_undoable(purge) == ""
    clock.advance(1)
    BulkOperation.objects.filter(pk=purge.pk).update(state="running", undoes=purge.pk)  # As if an undo were at it.
    keep_house()
    assert BulkItem.objects.count() == 5
    BulkOperation.objects.update(state="done")
    keep_house()
    assert not BulkItem.objects.exists()
    assert BulkOperation.objects.count() == 1


def purge_all(count: int) -> BulkOperation:
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * count)
    seen = bulk.preview(bulk.Selection(group="mail"))
    return bulk.start(
        bulk.Asked(action=bulk.Purge(), selection=seen.selection, expected=count, typed="mail"), Actor("olaf")
    )


class FakeConnection(SQLiteConnection):
    """A database that does what `change` says when it is asked for the n-th time."""

    def __init__(self, change: Callable[[int], Awaitable[bool]]) -> None:
        super().__init__("default")
        self._times = count(1)
        self._change_by = change
        self.is_closed = False

    async def change(self, steps):
        return await self._change_by(next(self._times))

    async def close(self) -> None:
        self.is_closed = True


def keep_house_until(change: Callable[[int, asyncio.Event], Awaitable[bool]]) -> None:
    """Until `change` sets the event."""

    async def work() -> None:
        enough = asyncio.Event()
        connection = FakeConnection(lambda times: change(times, enough))
        housekeeper = Housekeeper(connection)
        async with asyncio.timeout(20):
            await enough.wait()
            await housekeeper.stop()
        assert connection.is_closed

    asyncio.run(work())


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(housekeeping, "FOLD_EVERY_S", 0.001)
    monkeypatch.setattr(background, "RETRY_S", 0.001)


@pytest.mark.once
def test_it_goes_on_when_the_database_is_back_and_complains_once(no_pauses, caplog):
    async def change(times: int, enough: asyncio.Event) -> bool:
        if times <= 5:
            raise StoreUnavailable("away")
        if len(caplog.messages) == 2:
            enough.set()
        return False

    with caplog.at_level(logging.WARNING):
        keep_house_until(change)
    begun, over = caplog.messages
    assert begun.startswith("away; requests fail with 503 until it is back")
    assert over.startswith("the database is back after")


@pytest.mark.once
def test_a_chore_that_fails_holds_up_neither_the_others_nor_the_counts(no_pauses, monkeypatch, caplog):
    done: list[str] = []

    def fails(dialect):
        done.append("fails")
        raise ZeroDivisionError("of all things")

    def works(dialect):
        done.append("works")

    async def change(times: int, enough: asyncio.Event) -> bool:
        if done.count("works") and times > 10:
            enough.set()
        return False

    monkeypatch.setattr(housekeeping, "chores", lambda dialect: [fails, works])
    monkeypatch.setattr(housekeeping, "when_elected", lambda chore, dialect: chore is totals.fold or chore(dialect))
    keep_house_until(change)
    assert done == ["fails", "works"]
    assert caplog.messages == ["housekeeping: trying again: of all things"]


@pytest.mark.once
def test_it_stops_amid_a_step_for_which_the_database_never_answers():
    async def change(times: int, enough: asyncio.Event) -> bool:
        enough.set()
        await asyncio.get_running_loop().create_future()
        return False

    keep_house_until(change)


@only_postgresql
def test_only_one_keeps_house_at_a_time():
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [HOUSEKEEPING_LOCK])
            totals.fold_here()
            assert Rate.objects.count() == 0
            cursor.execute("COMMIT")
    finally:
        other.close()
    totals.fold_here()
    assert Rate.objects.count() == 1


@only_postgresql
def test_who_falls_silent_while_elected_is_not_waited_for():
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(*dialect_of("default").election())
            assert cursor.fetchone() == (True,)
        end = time.monotonic() + SILENCE_S / 2  # Long before other transactions are given up.
        while Rate.objects.count() == 0 and time.monotonic() < end:
            totals.fold_here()
            time.sleep(0.1)
    finally:
        other.close()
    assert Rate.objects.count() == 1


def large(count: int = 1) -> list[int]:
    """Add so many tasks with data that is kept apart. Returns their ids."""
    data = b"x" * PAYLOAD_BYTES
    return [task.id for task in Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=data)] * count)]


def data_of() -> list[int]:
    return list(Payload.objects.order_by("id").values_list("id", flat=True))


def test_data_goes_a_minute_after_its_task(clock, monkeypatch):
    monkeypatch.setattr(housekeeping, "STEP_BYTES", PAYLOAD_BYTES)
    kept, *ids = large(4)
    Task.objects.commit(owner=ANN, deletes=ids)
    clock.advance(60_000)
    keep_house()
    assert data_of() == [kept, *ids]
    clock.advance(1)
    keep_house()
    assert data_of() == [kept]
    assert not KeptPayload.objects.exists()


def test_data_stays_as_long_as_an_answer_that_has_it(clock, settings):
    settings.TASKSTORE_KEY_SECONDS = 600
    [told, gone] = large(2)
    renewal = Commit(owner=ANN, updates=(Change(id=told, timespec_ms=START_MS),), key=ResendKey("k", "d"))
    [task] = Task.objects.perform(renewal)
    Task.objects.commit(owner=ANN, deletes=[task.id, gone])
    clock.advance(599_000)
    keep_house()
    assert data_of() == [told]
    [again] = Task.objects.with_data(Task.objects.perform(renewal))
    assert (again.id, again.data) == (task.id, b"x" * PAYLOAD_BYTES)
    clock.advance(2_000)
    keep_house()
    assert data_of() == []


def test_a_repeated_claim_has_the_data_of_what_is_held_and_keeps_no_other(clock, settings):
    settings.TASKSTORE_KEY_SECONDS = 600
    large(2)
    claim = Claim(groups=("mail",), owner=ANN, limit=2, order=Order.OLDEST, key=ResendKey("k", "d"))
    [ended, held] = Task.objects.perform(claim)
    Task.objects.commit(owner=ANN, deletes=[ended.id])
    clock.advance(599_000)
    keep_house()
    assert len(data_of()) == 1
    [again] = Task.objects.with_data(Task.objects.perform(claim))
    assert (again.id, again.data) == (held.id, b"x" * PAYLOAD_BYTES)
