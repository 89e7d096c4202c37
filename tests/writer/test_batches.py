"""What the writer makes of many operations at once, and of what goes wrong among them."""

import asyncio
import random
import sqlite3
import threading
import time
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

from tasks_app.core.operations import Claim, Commit, Effect, Removal
from tasks_app.database import PostgreSQL, Statement, batches, claim_pools, transact
from tasks_app.database.outage import outage
from tasks_app.database.postgresql_pipeline import _numbered
from tasks_app.database.transaction_values import Done, Seen, written_by
from tasks_app.models import PausedGroup, Task
from tasks_app.writer.connection import PostgreSQLConnection, SQLiteConnection, settings_of_batches
from tasks_app.writer.waiting_claims import Awaited
from tasks_app.writer.writer import LARGE, Bounds
from taskstore.errors import CommitRefused, CommitUnknown, StoreBusy, StoreUnavailable
from taskstore.types.batches import NewBatch, Plan
from taskstore.types.tasks import Change, Ending, NewTask, Order
from tests.behaviour.databases import only_postgresql, only_sqlite
from tests.behaviour.people import ANN, BOB


def adding(*data, group="mail"):
    return Commit(owner=ANN, adds=tuple(NewTask(group=group, data=each) for each in data))


def test_what_fails_for_an_unexpected_reason_fails_alone(play, monkeypatch):
    async def scenario(writer):
        look = writer._connection.dialect.look

        def stumble(operations):
            if any(operation.owner == BOB for operation in operations):
                raise ZeroDivisionError
            return look(operations)

        monkeypatch.setattr(writer._connection.dialect, "look", stumble)
        operations = [adding(b"1"), adding(b"2"), Commit(owner=BOB, adds=(NewTask(group="mail"),)), adding(b"3")]
        answers: list[Any] = await asyncio.gather(*map(writer.submit, operations), return_exceptions=True)
        assert isinstance(answers.pop(2), ZeroDivisionError)
        assert [task.data for [task] in answers] == [b"1", b"2", b"3"]

    play(scenario)
    assert Task.objects.count() == 3


def test_too_much_is_refused_at_once(play):
    async def scenario(writer):
        answers = await asyncio.gather(*(writer.submit(adding(b"1")) for _ in range(8)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [list] * 5 + [StoreBusy] * 3

    play(scenario, Bounds(operations=2, queued=5))


def test_what_has_arrived_is_done_before_the_writer_stops(play):
    answers = list[asyncio.Future[Any]]()

    async def scenario(writer):
        answers.extend(asyncio.ensure_future(writer.submit(adding(b"1"))) for _ in range(8))
        await asyncio.sleep(0)

    play(scenario, Bounds(operations=2, queued=8))
    assert [len(answer.result()) for answer in answers] == [1] * 8
    assert Task.objects.count() == 8


def test_who_has_gone_before_the_turn_came_changes_nothing(play):
    async def scenario(writer):
        gone = asyncio.ensure_future(writer.submit(adding(b"gone")))
        await asyncio.sleep(0)
        gone.cancel()
        await writer.submit(adding(b"there"))

    play(scenario)
    assert [bytes(task.data) for task in Task.objects.all()] == [b"there"]


def test_a_verb_in_the_callers_transaction_does_not(play):
    def change_and_think_better_of_it():
        with transaction.atomic():
            Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
            transaction.set_rollback(True)

    async def scenario(writer):
        await sync_to_async(change_and_think_better_of_it)()
        assert await writer.submit(Claim(groups=("mail",), owner=BOB)) == []

    play(scenario)


@only_postgresql
def test_a_slow_transaction_of_somebody_else_stalls_nobody_else(play):
    is_locked, may_end = threading.Event(), threading.Event()

    def hold(task_id):
        with transaction.atomic():
            Task.objects.commit(owner=BOB, updates=[Change(id=task_id, data=b"slow")])
            is_locked.set()
            may_end.wait(30)
        connection.close()

    async def scenario(writer):
        [held], [free] = await writer.submit(adding(b"1")), await writer.submit(adding(b"2"))
        slow = threading.Thread(target=hold, args=[held.id])
        slow.start()
        await asyncio.to_thread(is_locked.wait)
        waits = asyncio.ensure_future(writer.submit(Commit(owner=ANN, deletes=(held.id,))))
        # Would never be answered if the writer waited for the locked task.
        assert len(await writer.submit(Commit(owner=ANN, updates=(Change(id=free.id),)))) == 1
        assert not waits.done()
        may_end.set()
        with pytest.raises(CommitRefused):
            await waits
        slow.join()

    play(scenario)


@only_postgresql
@pytest.mark.parametrize("priorities", [(0,), (0, 5)])
def test_claims_read_no_more_of_their_index_than_is_available(db, priorities):
    """Else each look for what there is to claim would read the whole group, or what others have claimed."""
    dialect = PostgreSQL("default", waits=False)
    group = "read-no-more"  # Of no other test: what they have deleted stays in the index.
    statement = dialect.read_pool(group, 100)
    leased = [NewTask(group=group, timespec_ms=-3_600_000)] * 9_000
    available = [NewTask(group=group, priority=priority) for priority in priorities] * (200 // len(priorities))
    Task.objects.commit(owner=ANN, adds=leased + available)
    dialect.rows("ANALYZE tasks_app_task")
    dialect.rows(*settings_of_batches(is_local=True, is_opportunistic=False))
    dialect.rows(f"PREPARE pool AS {_numbered(statement.sql).decode()}")
    values = f"'{group}', '{group}', '{group}', '{group}', 0, '{group}', 1800, 0"
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE pool({values})"
    [([found],)] = dialect.rows(explain)
    dialect.rows("DEALLOCATE pool")
    assert sum(blocks_of_tasks(found["Plan"])) < 60  # Of 150.


def blocks_of_tasks(plan):
    """Yield how many blocks each scan of the table has read."""
    if plan.get("Relation Name") == "tasks_app_task":
        yield plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    for part in plan.get("Plans", ()):
        yield from blocks_of_tasks(part)


@only_postgresql
def test_its_connection_may_be_cut_off_at_any_time(play):
    """An acknowledged commit is there, a refused one is not; only what is said to be unknown may be either."""
    said: dict[bytes, str] = {}

    async def work(writer, name):
        for number in range(40):
            data = f"{name} {number}".encode()
            try:
                await writer.submit(adding(data))
                said[data] = "there"
            except CommitUnknown:
                said[data] = "unknown"
            except StoreUnavailable:
                said[data] = "not there"

    async def cut_off(writer):
        for _ in range(30):
            await asyncio.sleep(random.uniform(0, 0.02))
            await sync_to_async(kill)(writer._connection)

    async def scenario(writer):
        await asyncio.gather(cut_off(writer), *(work(writer, name) for name in range(8)))

    play(scenario)
    there = {bytes(task.data) for task in Task.objects.all()}
    assert len(said) == 320
    assert {data for data, what in said.items() if what == "there"} <= there
    assert not there & {data for data, what in said.items() if what == "not there"}
    assert len(there) == Task.objects.count(), "nothing is there twice"


@pytest.mark.parametrize("count", [1, 4])
def test_an_error_after_the_commit_has_nothing_done_twice(play, monkeypatch, caplog, count):
    errors = [ZeroDivisionError("a defect")]

    def fail_once(*args):
        if errors:
            raise errors.pop()
        return Done(*args)

    async def scenario(writer):
        answers = await asyncio.gather(
            *(writer.submit(adding(b"%d" % number)) for number in range(count)), return_exceptions=True
        )
        # On SQLite it is noticed before the COMMIT: the batch is taken back, and its operations are done one by one.
        if isinstance(writer._connection, PostgreSQLConnection):
            assert {type(answer) for answer in answers} == {CommitUnknown}
            assert "a defect" in caplog.text
            assert not outage.is_on
        assert [task.data for task in await writer.submit(adding(b"next"))] == [b"next"]

    monkeypatch.setattr("tasks_app.database.transaction.Done", fail_once)
    play(scenario)
    there = [bytes(task.data) for task in Task.objects.all()]
    assert sorted(there) == sorted(set(there))
    assert len(there) == count + 1 or (count == 1 and there == [b"next"])


@only_postgresql
def test_who_had_to_wait_for_a_thread_waits_less_for_locked_rows(play, monkeypatch):
    def long_ago(operation, answer):
        return Awaited(operation, answer, arrived_s=time.monotonic() - 3_600)

    def hold(task_id, is_locked, may_end):
        with transaction.atomic():
            Task.objects.commit(owner=BOB, updates=[Change(id=task_id, data=b"slow")])
            is_locked.set()
            may_end.wait(60)
        connection.close()

    async def scenario(writer):
        is_locked, may_end = threading.Event(), threading.Event()
        [held] = await writer.submit(adding(b"1"))
        holding = asyncio.ensure_future(asyncio.to_thread(hold, held.id, is_locked, may_end))
        await asyncio.to_thread(is_locked.wait)
        monkeypatch.setattr("tasks_app.writer.writer.Awaited", long_ago)
        try:
            with pytest.raises(StoreBusy):
                await asyncio.wait_for(writer.submit(Commit(owner=ANN, deletes=(held.id,))), 30)
        finally:
            may_end.set()
            await holding

    monkeypatch.setattr("tasks_app.database.Dialect.patience_s", 3_600)
    play(scenario)


@only_postgresql
def test_what_the_database_can_not_write_is_not_done_for_certain(play, transactional_db):
    full = "BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE FUNCTION be_full() RETURNS trigger LANGUAGE plpgsql AS $$ {full} $$")
        cursor.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON tasks_app_task FOR EACH STATEMENT EXECUTE FUNCTION be_full()"
        )

    async def scenario(writer):
        with pytest.raises(StoreUnavailable, match="disk of the database is full") as raised:
            await writer.submit(adding(b"1"))
        assert not isinstance(raised.value, CommitUnknown)

    try:
        play(scenario)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION be_full CASCADE")


def kill(way):
    assert isinstance(way, PostgreSQLConnection)
    if way._connection is not None and not way._connection.is_closed:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [way._connection.server_pid])


def claiming(limit=1):
    return Claim(groups=("mail",), owner=BOB, limit=limit, order=Order.OLDEST)


def test_a_task_that_somebody_else_adds_with_an_old_time_is_found_when_nothing_else_is_left(play, monkeypatch):
    monkeypatch.setattr(claim_pools, "KEPT_S", float("inf"))

    async def scenario(writer):
        await writer.submit(adding(b"1", b"2", b"3"))
        await writer.submit(claiming())
        add = sync_to_async(Task.objects.commit, thread_sensitive=False)
        [old] = await add(owner=ANN, adds=[NewTask(group="mail", timespec_ms=1)])
        claimed = await writer.submit(claiming(limit=10))
        assert old.id in {task.origin for task in claimed}
        assert len(claimed) == 3

    play(scenario)


def test_claims_from_a_large_busy_group_take_each_task_once_and_any_of_the_oldest_thousand(play, monkeypatch):
    monkeypatch.setattr(claim_pools, "KEPT_S", float("inf"))

    async def scenario(writer):
        tasks = await writer.submit(adding(*[b""] * 3_000))
        claims = [await writer.submit(Claim(groups=("mail",), owner=BOB, limit=100)) for _ in range(30)]
        claimed = [task.origin for claim in claims for task in claim]
        assert sorted(claimed) == [task.id for task in tasks]
        places = [task_id - tasks[0].id for task_id in claimed]
        assert all(place < number + 2_000 for number, place in enumerate(places))
        assert places[:1_000] != sorted(places[:1_000])
        assert await writer.submit(Claim(groups=("mail",), owner=BOB)) == []

    play(scenario)


def test_claims_from_a_busy_group_find_what_is_left_when_others_have_deleted_nearly_all(play, monkeypatch):
    monkeypatch.setattr(claim_pools, "KEPT_S", float("inf"))

    async def scenario(writer):
        tasks = await writer.submit(adding(*[b""] * 1_500))
        busy = [await writer.submit(Claim(groups=("mail",), owner=BOB)) for _ in range(3)]
        gone = {task.origin for claimed in busy for task in claimed}
        left = [task.id for task in tasks if task.id not in gone][:5]
        delete = sync_to_async(Task.objects.commit, thread_sensitive=False)
        await delete(owner=ANN, deletes=[task.id for task in tasks if task.id not in gone.union(left)])
        claimed = await writer.submit(Claim(groups=("mail",), owner=BOB, limit=3))
        claimed += await writer.submit(Claim(groups=("mail",), owner=BOB, limit=3))
        assert sorted(task.origin for task in claimed) == left
        assert await writer.submit(Claim(groups=("mail",), owner=BOB)) == []

    play(scenario)


def test_a_higher_priority_comes_first_also_in_a_busy_group(play, monkeypatch):
    monkeypatch.setattr(claim_pools, "KEPT_S", float("inf"))

    async def scenario(writer):
        await writer.submit(adding(*[b""] * 1_500))
        for _ in range(3):
            await writer.submit(Claim(groups=("mail",), owner=BOB))
        add = sync_to_async(Task.objects.commit, thread_sensitive=False)
        [urgent, _] = await add(
            owner=ANN, adds=[NewTask(group="mail", priority=5), NewTask(group="mail", priority=9, timespec_ms=-60_000)]
        )
        [claimed] = await writer.submit(Claim(groups=("mail",), owner=BOB))
        assert claimed.origin == urgent.id
        assert (await writer.submit(Claim(groups=("mail",), owner=BOB)))[0].priority == 0

    play(scenario)


def test_a_pause_holds_also_in_a_busy_group(play, monkeypatch):
    monkeypatch.setattr(claim_pools, "KEPT_S", float("inf"))

    async def scenario(writer):
        await writer.submit(adding(*[b""] * 1_500))
        for _ in range(3):
            await writer.submit(Claim(groups=("mail",), owner=BOB))
        await sync_to_async(PausedGroup.objects.create)(group="mail", by="Ann")
        assert await writer.submit(Claim(groups=("mail",), owner=BOB)) == []

    play(scenario)


@only_sqlite
def test_a_reader_without_a_write_ahead_log_holds_a_commit_up_and_no_more(rollback_journal):
    async def scenario():
        alone = SQLiteConnection("default")  # Beside a writer others would write, too.
        with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM tasks_app_task").fetchone()
            adds = asyncio.ensure_future(alone.run(transact([adding(b"1")], alone.dialect)))
            while not (alone._connection and alone._connection.in_transaction):  # noqa: ASYNC110 - It is SQLite's.
                await asyncio.sleep(0.001)
            reader.execute("COMMIT")
            [decision] = (await adds).decisions
            await alone.close()
        assert isinstance(decision, list)
        assert [task.data for task in decision] == [b"1"]

    asyncio.run(asyncio.wait_for(scenario(), timeout=30))


@only_sqlite
@pytest.mark.parametrize("way", ["run", "change", "read"])
def test_a_connection_is_opened_once_nobody_recovers_the_file(way, monkeypatch, tmp_path):
    """The first connection after a crash has the file to itself for a while."""
    monkeypatch.setitem(connection.settings_dict, "NAME", str(tmp_path / "store.sqlite3"))

    def looking():
        [[row]] = yield [Statement("SELECT 1")]
        return row

    async def scenario():
        alone = SQLiteConnection("default")
        with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as first:
            first.execute("PRAGMA locking_mode = EXCLUSIVE")
            first.execute("PRAGMA journal_mode = WAL")
            first.execute("BEGIN EXCLUSIVE")
            first.execute("CREATE TABLE one (id)")
            asked = asyncio.ensure_future(getattr(alone, way)(looking()))
            await asyncio.sleep(0.2)
            assert (asked.done(), alone._connection) == (False, None)
            first.execute("COMMIT")
        assert await asked == (1,)
        await alone.close()

    asyncio.run(asyncio.wait_for(scenario(), timeout=30))


def test_a_connection_that_sent_much_is_replaced(play, monkeypatch):
    monkeypatch.setattr("tasks_app.writer.connection.KEPT_BYTES", 110_000)

    async def scenario(writer):
        used = writer._side or writer._connection
        await writer.submit(adding(*[b"1"] * 400))
        first = used._connection
        await writer.submit(adding(*[b"2"] * LARGE))
        assert used._connection is first
        await writer.submit(adding(*[b"x" * 300] * 400))
        assert used._connection is not first
        last = await writer.submit(adding(*[b"3"] * LARGE))
        assert {task.data for task in last} == {b"3"}

    play(scenario)
    assert Task.objects.count() == 800 + 2 * LARGE


@only_sqlite
def test_a_batch_is_answered_when_its_connection_can_not_be_replaced(play, monkeypatch, caplog):
    monkeypatch.setattr("tasks_app.writer.connection.KEPT_BYTES", 110_000)

    async def scenario(writer):
        await writer.submit(adding(b"1"))
        monkeypatch.setattr(sqlite3, "connect", fail)
        tasks = await writer.submit(adding(*[b"x" * 300] * 400))
        assert len(tasks) == 400
        await writer.submit(adding(b"2"))
        monkeypatch.undo()

    def fail(*_, **__):
        raise sqlite3.OperationalError("unable to open database file")

    play(scenario)
    assert Task.objects.count() == 402
    assert "could not be replaced" in caplog.text


# ---- A writer that claims from one group all the time, and so knows what to claim next, while others take just that


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
        side, writer._side = writer._side, None  # Both in one batch.
        _, claimed = await asyncio.gather(writer.submit(Commit(owner=ANN, deletes=tuple(others))), writer.submit(CLAIM))
        assert [task.origin for task in claimed] == [left]
        writer._side = side  # To be closed with it.

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


@only_postgresql
def test_ids_that_were_drawn_before_tasks_are_locked_are_not_used(transactional_db):
    """A task that is locked later may have a larger id than its successor would get."""
    task, dialect = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])[0], PostgreSQL("default", waits=False)
    seen = Seen(0, {}, {}, [1], {}, ids=[task.id - 1])
    with transaction.atomic():
        assert len(dialect.rows(*dialect.lock_tasks([task.id], seen))) == 1
    assert not seen.ids


def test_a_successor_with_a_smaller_id_is_an_error(transactional_db):
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    [record] = Task.objects.read([task.id])
    effect = Effect((Removal(record, Ending.CHANGED, 0),), (record._replace(id=0),), ANN)
    seen = Seen(0, {task.id: record}, {}, [1], {}, ids=[task.id - 1])
    with pytest.raises(RuntimeError, match=f"task {task.id} was locked after its successor"):
        written_by([Commit(owner=ANN)], [effect], seen)


def test_a_task_without_an_id_is_an_error(transactional_db):
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    [record] = Task.objects.read([task.id])
    effect = Effect((), (record._replace(id=0),) * 2, ANN)
    with pytest.raises(RuntimeError, match="fewer ids"):
        written_by([Commit(owner=ANN)], [effect], Seen(0, {}, {}, [1], {}, ids=[task.id + 1]))


@only_postgresql
def test_a_batch_closes_although_neither_of_two_transactions_saw_its_last_member_end(play, monkeypatch):
    monkeypatch.setattr(batches, "SHARED_BELOW", 1)  # As with many members.
    has_ended, ends = threading.Event(), threading.Event()

    def end_beside(task_id):
        with transaction.atomic():
            Task.objects.commit(owner=ANN, deletes=[task_id])
            has_ended.set()
            ends.wait(20)
        connections.close_all()

    async def scenario(writer):
        new = NewBatch(plan=Plan(then=Plan((NewTask(group="then"),))))
        first, second, third = await writer.submit(Commit(owner=ANN, adds=(NewTask(group="work"),) * 3, batch=new))
        await writer.submit(Commit(owner=ANN, deletes=(first.id,)))  # Now it is known how many are open.
        beside = asyncio.ensure_future(asyncio.to_thread(end_beside, second.id))
        await asyncio.to_thread(has_ended.wait, 20)
        await writer.submit(Commit(owner=ANN, deletes=(third.id,)))
        ends.set()
        await beside
        claim = Claim(groups=("then",), owner=ANN, wait_ms=20_000)
        assert len(await writer.submit(claim)) == 1

    play(scenario)
