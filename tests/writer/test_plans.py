"""How PostgreSQL finds the tasks that a commit names."""

import asyncio
import time

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from tasks_app.core.operations import Commit
from tasks_app.database import PostgreSQL, dialect_of, plain_sets, postgresql_pipeline
from tasks_app.models import Task
from tasks_app.writer.connection import PLANS, parameters_of
from taskstore.types.tasks import NewTask
from tests.behaviour.databases import only_postgresql
from tests.behaviour.people import ANN

pytestmark = only_postgresql

MANY = 1_000
MAIL = NewTask(group="mail")


def adding(number):
    return Commit(owner=ANN, adds=(MAIL,) * number)


@sync_to_async
def analyze():
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE tasks_app_task")


@sync_to_async
def scans():
    """So many times each index of the tasks was looked into."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexrelname, idx_scan FROM pg_stat_user_indexes WHERE relname = 'tasks_app_task'")
        return dict(cursor.fetchall())


async def after_it_is_told(writer, before):
    """The counts after a server process has told its own, which it does after a transaction once a second."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        await asyncio.sleep(1.1)
        [task] = await writer.submit(adding(1))
        await writer.submit(Commit(owner=ANN, deletes=(task.id,)))
        if (await scans())["tasks_app_task_pkey"] > before["tasks_app_task_pkey"]:
            await asyncio.sleep(1.1)
            return await scans()
    raise AssertionError("nothing was told")


async def plan_while_there_is_one_task(writer):
    [task] = await writer.submit(adding(1))
    await analyze()
    await writer.submit(Commit(owner=ANN, deletes=(task.id,)))
    await asyncio.sleep(1.1)
    await writer.submit(adding(1))  # The one before tells its counts.
    await asyncio.sleep(0.1)


def by_other_indexes(before, after):
    return {name: after[name] - before[name] for name in after if name != "tasks_app_task_pkey"}


def test_many_tasks_are_found_by_their_ids(play):
    async def scenario(writer):
        await plan_while_there_is_one_task(writer)
        others = []
        for _ in range(3):  # A connection of an earlier test may tell only now what it had counted.
            tasks = await writer.submit(adding(MANY))
            before = await scans()
            await writer.submit(Commit(owner=ANN, deletes=tuple(task.id for task in tasks)))
            others.append(by_other_indexes(before, await after_it_is_told(writer, before)))
            if not any(others[-1].values()):
                return
        raise AssertionError(f"other indexes were looked into: {others}")

    play(scenario)


def count_while_it_is_empty(cursor):
    cursor.execute("REINDEX TABLE tasks_app_task")  # After other tests the smallest index may be another one.
    Task.objects.commit(owner=ANN, deletes=[task.id for task in Task.objects.commit(owner=ANN, adds=[MAIL] * MANY)])
    cursor.execute("ANALYZE tasks_app_task")
    Task.objects.commit(owner=ANN, adds=[MAIL] * MANY)


def indexes_in(plan):
    """The index and the condition of each look into the tasks."""
    if plan.get("Relation Name") == "tasks_app_task" and "Index Name" in plan:
        yield plan["Index Name"], plan.get("Index Cond", "")
    for part in plan.get("Plans", ()):
        yield from indexes_in(part)


@pytest.mark.parametrize(
    "statement",
    [
        plain_sets.claiming(PostgreSQL.clock, is_kept=True, has_keys=False),
        plain_sets.claiming(PostgreSQL.clock, is_kept=True, has_keys=True),
        plain_sets.ending(PostgreSQL.clock, is_kept=True, has_keys=True, is_bounded=True, has_limits=False),
        plain_sets.ending(PostgreSQL.clock, is_kept=True, has_keys=False, is_bounded=False, has_limits=True),
    ],
)
def test_a_table_that_was_counted_while_it_was_empty_is_not_walked_through(transactional_db, statement):
    number = statement.count("%s")
    for place in range(1, number + 1):
        statement = statement.replace("%s", f"${place}", 1)
    with connection.cursor() as cursor:
        count_while_it_is_empty(cursor)
        with transaction.atomic():
            for name, value in PLANS.items():
                cursor.execute(f"SET LOCAL {name} = {value}")
            cursor.execute(f"PREPARE tried AS {statement}")
            cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE tried({', '.join(['NULL'] * number)})")
            [(plans,)] = cursor.fetchall()
            cursor.execute("DEALLOCATE tried")
    looks = [condition for name, condition in indexes_in(plans[0]["Plan"]) if name == "tasks_app_task_pkey"]
    print(plans)
    assert len(looks) == 1, plans
    assert "(id = ANY" in looks[0]
    others = [condition for name, condition in indexes_in(plans[0]["Plan"]) if name != "tasks_app_task_pkey"]
    assert all("group" in condition for condition in others)


def test_a_table_that_was_counted_while_it_was_empty_is_soon_counted_again(play):
    def counted():
        with connection.cursor() as cursor:
            cursor.execute("SELECT reltuples FROM pg_class WHERE relname = 'tasks_app_task'")
            return cursor.fetchone()[0]

    def begin():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE tasks_app_task SET (autovacuum_enabled = false)")  # Which would count it, too.
            count_while_it_is_empty(cursor)
        assert counted() == 0

    def end():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE tasks_app_task RESET (autovacuum_enabled)")

    async def scenario(writer):
        await sync_to_async(begin)()
        until = time.monotonic() + 30
        while await sync_to_async(counted)() == 0:
            assert time.monotonic() < until
            await writer.submit(adding(1))  # Something that is folded.
            await asyncio.sleep(0.5)
        assert await sync_to_async(counted)() > MANY / 2

    try:
        play(scenario)
    finally:
        end()


def test_tables_are_counted_again_whatever_their_schema_is_called(db):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute('CREATE SCHEMA "My-Shop"')
        cursor.execute('SET LOCAL search_path = "My-Shop", public')
        dialect = dialect_of("default")
        dialect.drive(dialect.count_anew())
        transaction.set_rollback(True)


def test_prepared_statements_do_not_pile_up(transactional_db):
    async def names():
        pipeline = await postgresql_pipeline.Pipeline.connect(parameters_of("default"))
        try:
            for _ in range(5):
                pipeline._prepared_since_s -= postgresql_pipeline.PLANS_KEPT_S
                await pipeline.run([("SELECT %s::text", ["a"]), ("SELECT %s::bigint", [1])])
            [rows] = await pipeline.run([("SELECT count(*)::bigint FROM pg_prepared_statements", ())])
            return rows
        finally:
            await pipeline.close()

    assert asyncio.run(names()) == [(3,)]
