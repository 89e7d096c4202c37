"""On PostgreSQL the trail has a table for each day: made ahead, and dropped whole."""

import asyncio
import time
from datetime import UTC, datetime

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection

from tasks_app.database.history_partitions import DAY_MS
from tasks_app.models import EndedTask, Task
from tasks_app.reading.history import chain_of, epitaph_of
from tasks_app.writer.connection import connection_to
from tasks_app.writer.housekeeping import chores
from tasks_app.writer.totals import when_elected
from taskstore.types.tasks import Change, NewTask

from .conftest import tables_of_days
from .databases import only_postgresql
from .people import ANN
from .rivals import Rival
from .test_housekeeping import end, keep_house

pytestmark = [only_postgresql, pytest.mark.usefixtures("days_made_anew")]

DEFAULT = "tasks_app_endedtask_default"


def table_of(time_ms: int) -> str:
    return f"tasks_app_endedtask_{datetime.fromtimestamp(time_ms // 1000, UTC):%Y_%m_%d}"


def execute(sql, *parameters):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []


def tables_with(*ids: int) -> set[str]:
    """The tables in which the rows of these ids are."""
    sql = "SELECT DISTINCT tableoid::regclass::text FROM tasks_app_endedtask WHERE id = ANY(%s)"
    return {name for (name,) in execute(sql, list(ids))}


def test_a_new_database_has_the_tables_of_three_days(clock):
    assert tables_of_days() == [table_of(clock.now_ms + days * DAY_MS) for days in range(3)]


def test_what_ended_lies_in_the_table_of_its_day(clock):
    today = end()
    clock.advance(DAY_MS)
    tomorrow = end()
    assert tables_with(*today) == {table_of(clock.now_ms - DAY_MS)}
    assert tables_with(*tomorrow) == {table_of(clock.now_ms)}


def test_the_bounds_of_a_day_are_midnights_in_utc(clock):
    midnight = clock.now_ms // DAY_MS * DAY_MS + DAY_MS
    clock.set(midnight - 1)
    last = end()
    clock.set(midnight)
    first = end()
    assert (tables_with(*last), tables_with(*first)) == ({table_of(midnight - 1)}, {table_of(midnight)})


def test_days_are_made_ahead(clock):
    clock.advance(2 * DAY_MS)
    keep_house()
    assert tables_of_days() == [table_of(clock.now_ms + days * DAY_MS) for days in range(-2, 3)]


def test_days_are_dropped_whole_when_they_are_old(clock, settings):
    settings.TASKSTORE_HISTORY_DAYS = 2
    first = clock.now_ms
    end(3)
    clock.set((first // DAY_MS + 3) * DAY_MS - 1)
    keep_house()
    assert table_of(first) in tables_of_days()
    clock.advance(1)
    keep_house()
    assert table_of(first) not in tables_of_days()
    assert table_of(first + DAY_MS) in tables_of_days()
    assert not EndedTask.objects.exists()


def test_the_oldest_days_are_dropped_while_all_take_too_much_room(clock, settings):
    first = clock.now_ms
    for _ in range(3):
        end(3)
        clock.advance(DAY_MS)
        keep_house()
    end(3)
    days = [table_of(first + day * DAY_MS) for day in range(6)]
    assert tables_of_days() == days
    sizes = [execute(f"SELECT pg_total_relation_size('{name}')")[0][0] for name in (*days[1:], DEFAULT)]
    settings.TASKSTORE_HISTORY_BYTES = sum(sizes) - 1  # Without the first day it would still be too large.
    keep_house()
    assert tables_of_days() == days[2:]
    settings.TASKSTORE_HISTORY_BYTES = 1
    keep_house()
    assert tables_of_days() == days[3:]
    assert EndedTask.objects.count() == 3


def test_history_may_be_kept_longer_than_there_were_days(settings):
    settings.TASKSTORE_HISTORY_DAYS = 10_000_000
    end()
    keep_house()
    assert EndedTask.objects.count() == 1


def test_a_commit_never_fails_for_want_of_a_table(clock):
    clock.advance(10 * DAY_MS)
    [task_id] = end()
    assert tables_with(task_id) == {DEFAULT}
    assert epitaph_of(task_id) == f"task {task_id} was deleted"


def test_a_day_of_which_rows_are_in_the_default_table_stays_there(clock):
    clock.advance(10 * DAY_MS)
    stray = end()
    keep_house()
    assert table_of(clock.now_ms) not in tables_of_days()
    assert table_of(clock.now_ms + DAY_MS) in tables_of_days()
    assert tables_with(*stray, *end()) == {DEFAULT}
    clock.advance(DAY_MS)
    assert tables_with(*end()) == {table_of(clock.now_ms)}
    assert tables_with(*stray) == {DEFAULT}


def test_what_is_in_the_default_table_goes_when_it_is_old(clock, settings):
    settings.TASKSTORE_HISTORY_DAYS = 2
    clock.advance(10 * DAY_MS)
    [stray] = end()
    clock.advance(2 * DAY_MS)
    keep_house()
    assert tables_with(stray) == {DEFAULT}
    clock.advance(1)
    keep_house()
    assert tables_with(stray) == set()


def test_what_a_wrong_clock_wrote_far_ahead_does_not_stay_until_then(clock, settings):
    settings.TASKSTORE_HISTORY_DAYS = 4
    clock.advance(5 * DAY_MS)
    far = end()
    clock.advance(-DAY_MS)
    near = end()
    clock.advance(-4 * DAY_MS)
    keep_house()
    assert tables_with(*far) == set()
    assert tables_with(*near) == {DEFAULT}


@pytest.fixture
def bob(transactional_db):
    with Rival("Bob") as bob:
        yield bob


def test_it_does_not_wait_for_who_reads_the_trail(clock, bob):
    first = clock.now_ms
    end()
    clock.advance(9 * DAY_MS)
    with bob.transaction():
        bob.do(lambda: list(EndedTask.objects.all()))
        began = time.monotonic()
        keep_house()
        assert time.monotonic() - began < 2
        assert table_of(first) in tables_of_days()
        assert table_of(clock.now_ms) not in tables_of_days()
        assert tables_with(*end()) == {DEFAULT}
    keep_house()
    assert table_of(first) not in tables_of_days()
    assert table_of(clock.now_ms + DAY_MS) in tables_of_days()


def test_a_day_of_which_somebody_is_just_writing_rows_is_not_made(clock, bob):
    clock.advance(10 * DAY_MS)
    with bob.transaction():
        [stray] = bob.do(end)
        keep_house()
    keep_house()
    assert tables_with(stray) == {DEFAULT}
    assert table_of(clock.now_ms) not in tables_of_days()
    assert table_of(clock.now_ms + DAY_MS) in tables_of_days()


def test_days_are_made_while_somebody_commits(clock, bob):
    with bob.transaction():
        [today] = bob.do(end)
        clock.advance(DAY_MS)
        keep_house()
        assert table_of(clock.now_ms + 2 * DAY_MS) in tables_of_days()
    assert tables_with(today) == {table_of(clock.now_ms - DAY_MS)}


def test_a_server_makes_and_drops_days(clock, bob):
    """On its own connection, which prepares what it sends."""
    first = clock.now_ms
    end()
    clock.advance(9 * DAY_MS)
    with bob.transaction():
        bob.do(lambda: list(EndedTask.objects.all()))
        asyncio.run(keep_house_in_server())
        assert table_of(first) in tables_of_days()
    asyncio.run(keep_house_in_server())
    assert tables_of_days()[-3:] == [table_of(clock.now_ms + days * DAY_MS) for days in range(3)]
    assert table_of(first) not in tables_of_days()


async def keep_house_in_server() -> None:
    connection = connection_to("default", is_durable=False)
    for chore in chores(connection.dialect):
        while await connection.change(when_elected(chore, connection.dialect)):
            pass  # The walk over the groups takes several steps.
    await connection.close()


def test_emptying_the_store_empties_each_day(clock):
    end()
    clock.advance(10 * DAY_MS)
    end()
    call_command("flush", interactive=False, verbosity=0)
    assert not EndedTask.objects.exists()


def test_no_table_of_the_trail_can_be_changed(clock):
    here = end()
    clock.advance(10 * DAY_MS)
    there = end()
    for table in tables_with(*here, *there):
        with pytest.raises(DatabaseError, match="immutable"):
            execute(f"UPDATE {table} SET reason = 'forged'")  # noqa: S608 - our own names


def test_a_chain_over_many_days_is_told_whole(clock):
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    ids = [task.id]
    for _ in range(6):
        clock.advance(DAY_MS)
        [task] = Task.objects.commit(owner=ANN, updates=[Change(id=task.id)])
        ids.append(task.id)
    for task_id in ids:
        chain = chain_of(task_id)
        assert chain
        assert chain.is_whole
        assert chain.living
        assert [step.id for step in chain.ended] + [chain.living.id] == ids


def test_a_row_is_found_by_an_index(clock):
    """By its id and by its origin, also in a large table; and the newest ones, for a list."""
    column_names = ", ".join(f'"{field.column}"' for field in EndedTask._meta.fields[1:])
    [task_id] = end()
    clock.advance(10 * DAY_MS)
    [stray] = end()
    for template in (task_id, stray):
        execute(
            f"""
            INSERT INTO tasks_app_endedtask (id, {column_names})
            SELECT number + 1000000::bigint * %s, {column_names.replace('"origin"', "number")}
            FROM tasks_app_endedtask, generate_series(1, 20000) AS number
            WHERE id = %s
            """,  # noqa: S608 - our own names
            template,
            template,
        )
    [table] = tables_with(task_id)
    execute(f"ANALYZE {table}")
    execute(f"ANALYZE {DEFAULT}")
    for rows in (
        EndedTask.objects.filter(id=7).order_by("id")[:1],
        EndedTask.objects.filter(origin=7).order_by("id"),
        EndedTask.objects.filter(origin=7, id__lt=9).order_by("id"),
        EndedTask.objects.order_by("-id")[:100],
    ):
        plan = rows.explain()
        assert f"on {table}" in plan
        assert f"on {DEFAULT}" in plan
        assert "Seq Scan" not in plan
