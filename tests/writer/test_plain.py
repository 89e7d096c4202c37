"""The short way of a plain batch on PostgreSQL, and everything that makes it take the general one."""

import asyncio
import threading
from contextlib import asynccontextmanager

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from tasks_app.core.operations import EVERY_GROUP, Apart, Claim, Commit, GroupScope, Query, ResendKey, Update
from tasks_app.database import claim_pools, postgresql_pipeline
from tasks_app.database.plain import REMOVAL, asked_by, row_packers_of
from tasks_app.database.rows import PAYLOAD_BYTES
from tasks_app.models import EndedTask, KeptPayload, PausedGroup, Payload, Task
from tasks_app.writer.connection import parameters_of
from taskstore.errors import CommitRefused, StoreUnavailable
from taskstore.types.tasks import Change, NewTask, Order, json_size
from tests.behaviour.databases import only_postgresql
from tests.behaviour.people import ANN, BOB

pytestmark = only_postgresql

MANY = 1_500  # So many that the writer keeps ids for the next claims.
CLAIM = Claim(groups=("mail",), owner=BOB)


@pytest.fixture
def trips(monkeypatch):
    """The statements of each round trip, as text, beside the pipeline."""
    trips = []
    send = postgresql_pipeline.Pipeline.send

    def noted(self, statements):
        trips.append((self, [" ".join(sql.split()) for sql, _ in statements]))
        return send(self, statements)

    monkeypatch.setattr(postgresql_pipeline.Pipeline, "send", noted)
    monkeypatch.setattr(claim_pools, "KEPT_S", float("inf"))
    return trips


def adding(count=1, **fields):
    return Commit(owner=ANN, adds=(NewTask(**{"group": "mail", **fields}),) * count)


async def busy(writer):
    """Make the group one that is claimed from all the time. Returns its tasks."""
    tasks = await writer.submit(adding(MANY))
    for _ in range(3):
        await writer.submit(CLAIM)
    return tasks


def is_short_way(trips, writer):
    """Whether the writer's last transaction was that of a plain batch."""
    sent = [statements for pipeline, statements in trips if pipeline is writer._connection._connection]
    begun = max(place for place, statements in enumerate(sent) if statements[0] == "BEGIN")
    drew_ids = "array_send" in sent[begun][-1]
    return drew_ids and sent[-1][-1] == "COMMIT" and not any("WITH drafts" in sql for sql in sent[-1])


@asynccontextmanager
async def held(*ids):
    """Somebody else has locked these tasks."""
    is_locked, may_end = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SELECT FROM tasks_app_task WHERE id = ANY(%s) FOR UPDATE", [list(ids)])
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


def test_claims_and_deletions_take_two_trips(play, trips):
    async def scenario(writer):
        await busy(writer)
        [claimed] = await writer.submit(CLAIM)
        assert is_short_way(trips, writer)
        [other], done = await asyncio.gather(
            writer.submit(CLAIM), writer.submit(Commit(owner=BOB, deletes=(claimed.id,)))
        )
        assert done == []
        assert is_short_way(trips, writer)
        assert await sync_to_async(Task.objects.count)() == MANY - 1
        ended = await sync_to_async(EndedTask.objects.get)(id=claimed.origin)
        assert (ended.ending, ended.successor, ended.ended_by) == ("claimed", claimed.id, BOB)
        assert await sync_to_async(Task.objects.get)(id=other.id) == Task.of(other)

    play(scenario)


def test_the_rows_are_those_that_the_general_way_writes(play, trips):
    add = NewTask(
        group="mail",
        data=b"\0\xff",
        data_type="example/Letter",
        error="Zürich",
        labels={"team": "röd"},
        priority=-100,
        timespec_ms=-5_000,
    )

    def rows():
        told = dict.fromkeys(("id", "origin", "successor", "made_by_commit", "ended_by_commit"), 0)
        times = ("available_at_ms", "created_at_ms", "made_at_ms", "leased_since_ms", "ended_at_ms")
        everything = [*Task.objects.values(), *EndedTask.objects.values()]
        return [{**row, **{name: 0 for name in (*told, *times) if name in row}} for row in everything]

    async def do_all(writer):
        [task] = await writer.submit(Commit(owner=ANN, adds=(add,)))
        [task] = await writer.submit(Commit(owner=ANN, updates=(Change(id=task.id, data=b"", labels={}),)))
        [task] = await writer.submit(Commit(owner=ANN, updates=(Change(id=task.id, group="reports"),)))
        return await sync_to_async(rows)()

    async def scenario(writer):
        plainly = await do_all(writer)
        assert is_short_way(trips, writer)
        writer._connection.dialect.row_packers = None
        generally = await do_all(writer)
        assert not is_short_way(trips, writer)
        assert [row for row in generally if row not in plainly] == []
        assert len(generally) == 2 * len(plainly)

    play(scenario)


def test_an_answer_is_kept_under_its_key_in_the_same_trips(play, trips):
    key = ResendKey("ann/1", "digest")

    async def scenario(writer):
        await writer.submit(adding())
        keyed = Commit(owner=ANN, adds=(NewTask(group="mail"),), key=key)
        [first] = await writer.submit(keyed)
        assert is_short_way(trips, writer)
        [again] = await writer.submit(keyed)
        assert again.id == first.id
        await busy(writer)
        [claimed] = await writer.submit(Claim(groups=("mail",), owner=BOB, key=ResendKey("bob/1", "digest")))
        assert is_short_way(trips, writer)
        assert await writer.submit(Claim(groups=("mail",), owner=BOB, key=ResendKey("bob/1", "digest"))) == [claimed]

    play(scenario)


def test_a_claim_gets_another_task_where_somebody_else_holds_the_chosen_one(play, trips):
    async def scenario(writer):
        await busy(writer)
        pool = writer._connection.dialect._pools._pools["mail"]
        chosen = pool.ids[:1]
        pool.ids = list(chosen)
        async with held(*chosen):
            [claimed] = await writer.submit(CLAIM)
            assert claimed.origin not in chosen
            assert claimed.id > max(chosen)

    play(scenario)


def test_a_claim_gets_another_task_where_the_chosen_one_is_gone(play, trips):
    async def scenario(writer):
        await busy(writer)
        pool = writer._connection.dialect._pools._pools["mail"]
        pool.ids = pool.ids[:1]
        await sync_to_async(Task.objects.commit)(owner=ANN, deletes=list(pool.ids))
        assert len(await writer.submit(CLAIM)) == 1

    play(scenario)


def test_what_is_missing_is_refused_and_uses_up_no_id(play):
    async def scenario(writer):
        [task] = await writer.submit(adding())
        with pytest.raises(CommitRefused) as refused:
            await writer.submit(Commit(owner=ANN, adds=(NewTask(group="mail"),), deletes=(task.id + 1,)))
        assert refused.value.refusal.deletes == (task.id + 1,)
        [claimed] = await writer.submit(CLAIM)
        with pytest.raises(CommitRefused) as refused:
            await writer.submit(Commit(owner=ANN, updates=(Change(id=claimed.id),)))
        assert refused.value.refusal.owned == (claimed.id,)
        [other] = await writer.submit(adding())
        assert other.id == claimed.id + 1

    play(scenario)


def test_what_somebody_else_holds_is_waited_for_on_the_side(play):
    async def scenario(writer):
        [task] = await writer.submit(adding())
        async with held(task.id):
            waiting = asyncio.ensure_future(writer.submit(Commit(owner=ANN, deletes=(task.id,))))
            await writer.submit(adding())
            assert not waiting.done()
        assert await waiting == []

    play(scenario)


def test_long_data_is_kept_apart_and_goes_with_its_task(play, trips):
    long = b"x" * PAYLOAD_BYTES

    async def scenario(writer):
        [task] = await writer.submit(adding(data=long))
        assert await sync_to_async(Payload.objects.count)() == 1
        [renewed] = await writer.submit(Commit(owner=ANN, updates=(Change(id=task.id, timespec_ms=-60_000),)))
        assert renewed.data == Apart(task.id, json_size(long))
        assert await sync_to_async(Payload.objects.count)() == 1
        await writer.submit(Commit(owner=ANN, deletes=(renewed.id,)))
        assert await sync_to_async(KeptPayload.objects.filter(id=task.id, gone=1).exists)()

    play(scenario)


def test_a_claim_that_loses_its_task_to_a_neighbour_is_not_told_nothing(play, trips):
    async def scenario(writer):
        await busy(writer)
        pool = writer._connection.dialect._pools._pools["mail"]
        [chosen] = pool.ids = pool.ids[:1]
        _, claimed = await asyncio.gather(writer.submit(Commit(owner=ANN, deletes=(chosen,))), writer.submit(CLAIM))
        assert len(claimed) == 1

    play(scenario)


def test_a_paused_group_and_a_higher_priority_are_noticed(play, trips):
    async def scenario(writer):
        await busy(writer)
        [urgent] = await sync_to_async(Task.objects.commit)(owner=ANN, adds=[NewTask(group="mail", priority=5)])
        [claimed] = await writer.submit(CLAIM)
        assert claimed.origin == urgent.id
        await sync_to_async(PausedGroup.objects.create)(group="mail", by="Ann")
        assert await writer.submit(CLAIM) == []

    play(scenario)


def test_a_higher_priority_that_is_leased_uses_up_no_ids(play, trips):
    async def scenario(writer):
        await busy(writer)
        await writer.submit(adding(priority=5))
        for _ in range(4):  # The last of them finds out that the short way is none.
            await writer.submit(CLAIM)
        sent = len(trips)
        [one], [other] = [await writer.submit(CLAIM) for _ in range(2)]
        assert (one.priority, other.id) == (0, one.id + 1)
        assert len([pipeline for pipeline, _ in trips[sent:] if pipeline is writer._connection._connection]) == 4

    play(scenario)


def test_what_fails_between_the_trips_is_not_done(play, monkeypatch):
    send = postgresql_pipeline.Pipeline.send

    def cut_before_the_write(self, statements):
        if any(sql == REMOVAL for sql, _ in statements):
            with psycopg.connect(**parameters_of("default")) as other:
                other.execute("SELECT pg_terminate_backend(%s, 10000)", [self.server_pid])
        return send(self, statements)

    async def scenario(writer):
        [task] = await writer.submit(adding())
        monkeypatch.setattr(postgresql_pipeline.Pipeline, "send", cut_before_the_write)
        with pytest.raises(StoreUnavailable):
            await writer.submit(Commit(owner=ANN, deletes=(task.id,)))
        monkeypatch.setattr(postgresql_pipeline.Pipeline, "send", send)
        assert await writer.submit(Commit(owner=ANN, deletes=(task.id,))) == []

    play(scenario)


def test_behind_a_pooler_the_settings_go_with_each_transaction(play, monkeypatch):
    async def none_of_its_own(_):
        return True

    async def shown(writer):
        [[(value,)]] = await writer._connection._connection.run([("SHOW enable_seqscan", ())])
        return value

    async def scenario(writer):
        await writer.submit(adding())
        assert await shown(writer) == "off"
        await writer._connection.close()
        monkeypatch.setattr(postgresql_pipeline, "is_pooled", none_of_its_own)
        [task] = await writer.submit(adding())
        assert await shown(writer) == "on"
        assert await writer.submit(Commit(owner=ANN, deletes=(task.id,))) == []

    play(scenario)


def alter(how):
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE tasks_app_task {how}")


def test_a_column_that_this_code_does_not_know_leads_the_general_way(play, trips):
    async def scenario(writer):
        [task] = await writer.submit(adding())
        await sync_to_async(alter)("ADD COLUMN extra integer NOT NULL DEFAULT 1")
        assert await writer.submit(Commit(owner=ANN, deletes=(task.id,))) == []
        [task] = await writer.submit(adding())  # On a connection that was opened before.
        assert not is_short_way(trips, writer)
        await writer._connection.close()
        [task] = await writer.submit(Commit(owner=ANN, updates=(Change(id=task.id),)))
        assert not is_short_way(trips, writer)

    try:
        play(scenario)
    finally:
        alter("DROP COLUMN extra")


def test_a_table_with_other_columns_is_not_packed():
    assert row_packers_of([("tasks_app_task", 1, "id", "bigint", True)]) is None


@pytest.mark.parametrize(
    "operation",
    [
        Claim(groups=("mail", "reports"), owner=ANN),
        Claim(groups=("mail",), owner=ANN, order=Order.OLDEST),
        Claim(groups=("mail",), owner=ANN, depends=(1,)),
        Claim(groups=("mail",), owner=ANN, scope=GroupScope(("reports",))),
        Query(groups=("mail",)),
        Commit(owner=ANN, deletes=(1,), depends=(2,)),
        Commit(owner=ANN, adds=(NewTask(group="mail", data=b"x" * PAYLOAD_BYTES),)),
        Commit(owner=ANN, adds=(NewTask(group=""),)),
        Commit(owner=ANN, updates=(Change(id=1, data=b"x" * PAYLOAD_BYTES),)),
        Commit(owner=ANN, updates=(Change(id=1),), deletes=(1,)),
        Update(adds=(NewTask(group="mail"),), deletes=(1,), scope=GroupScope(("mail",))),
    ],
)
def test_what_is_not_plain(operation):
    assert asked_by([operation]) is None
    assert asked_by([CLAIM, Commit(owner=ANN, deletes=(7,), scope=EVERY_GROUP)]) is not None
