"""How much there was at the end of each minute, as the database keeps it."""

import asyncio
from threading import Barrier, Thread

from django.db import connection

from tasks_app.database import HOUSEKEEPING_LOCK, dialect_of, time_limits
from tasks_app.models import Client, Level, Task
from tasks_app.reading import clients
from tasks_app.writer import housekeeping, totals
from tasks_app.writer.connection import connection_to
from tasks_app.writer.housekeeping import Housekeeper
from taskstore.types.tasks import NewTask

from .databases import only_postgresql
from .people import ANN, BOB

MINUTE = 10_000
START_MS = MINUTE * 60_000 + 5_000


def kept() -> list[tuple[int, ...]]:
    return list(Level.objects.order_by("minute").values_list(*housekeeping.COLUMNS))


def test_it_is_what_all_groups_hold_and_who_is_heard(clock):
    clock.set(START_MS)
    for group in ("mail", "reports"):
        failed = NewTask(group=group, error="broken")
        Task.objects.commit(owner=ANN, adds=[failed, failed, failed, NewTask(group=group, timespec_ms=-3_600_000)])
        Task.objects.claim(group, owner=BOB)
        Task.objects.claim(group, owner=BOB, duration_ms=0)
    totals.fold_here()
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])  # Not folded yet.
    for client_id, age_ms in ((1, 0), (2, 119_999), (3, 120_000)):
        clock.set(START_MS - age_ms)
        clients.hear(Client(id=client_id, groups=[], info="{}"))
    clock.set(START_MS)
    assert housekeeping.keep() == 55.0
    assert kept() == [(MINUTE - 1, 1, 2, 2, 2, 2, 0, 2)]


def test_the_first_one_of_a_minute_stays(clock):
    clock.set(START_MS)
    housekeeping.keep()
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    housekeeping.keep()
    clock.advance(60_000)
    housekeeping.keep()
    assert kept() == [(MINUTE - 1, *[0] * 7), (MINUTE, 1, *[0] * 6)]


def test_a_minute_that_ended_a_while_ago_is_left_out(clock):
    clock.set(MINUTE * 60_000 + 20_000)
    assert (housekeeping.keep(), kept()) == (40.0, [])


def test_several_that_keep_it_at_once_do_not_fail(clock):
    clock.set(START_MS)
    start, failures = Barrier(4), list[Exception]()

    def keep() -> None:
        start.wait()
        try:
            housekeeping.keep()
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [Thread(target=keep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(kept()) == 1


@only_postgresql
def test_it_is_tried_again_when_somebody_else_keeps_house(clock):
    clock.set(START_MS)
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [HOUSEKEEPING_LOCK])
            assert (housekeeping.keep(), kept()) == (0.0, [])
            cursor.execute("COMMIT")
    finally:
        other.close()
    assert housekeeping.keep() == 55.0
    assert len(kept()) == 1


def test_a_minute_for_which_the_database_takes_too_long_is_left_out(clock, monkeypatch):
    clock.set(START_MS)
    slow = {"postgresql": "(SELECT 1 FROM pg_sleep(20))", "sqlite": ENDLESS}[connection.vendor]
    monkeypatch.setattr(housekeeping, "LIMIT_S", 0.05)
    monkeypatch.setattr(time_limits, "STEPS_BETWEEN_LOOKS", 100)
    monkeypatch.setattr(housekeeping, "numbers_of_all", lambda using: dialect_of(using).rows(f"SELECT {slow}"))
    assert housekeeping.keep() == 55.0
    assert kept() == []


ENDLESS = "(WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT max(n) FROM n)"


def test_the_housekeeper_keeps_it_by_itself(clock, monkeypatch):
    monkeypatch.setattr(housekeeping, "LEVEL_EVERY_S", 0.0)
    clock.set(START_MS)

    async def work() -> None:
        housekeeper = Housekeeper(connection_to("default", is_durable=False))
        async with asyncio.timeout(20):
            while not await asyncio.to_thread(is_kept):  # noqa: ASYNC110 - It happens in the database.
                await asyncio.sleep(0.05)
        await housekeeper.stop()

    asyncio.run(work())
    assert kept() == [(MINUTE - 1, *[0] * 7)]


def is_kept() -> bool:
    try:
        return bool(kept())
    finally:
        connection.close()
