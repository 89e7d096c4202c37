"""The queue of those who write to an SQLite file: threads and coroutines, each when it asked."""

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tasks_app.core.meters import meters
from tasks_app.database import atomic, dialect_of
from tasks_app.database.sqlite import SQLite
from tasks_app.database.turns import Turn, turns
from tasks_app.models import Token
from taskstore.errors import StoreBusy
from tests.behaviour.databases import only_sqlite

LONG_S = 10.0


@pytest.fixture
def turn() -> Turn:
    return Turn()


def until(condition):
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_thread_that_has_it_may_take_it_again(turn):
    assert turn.acquire(0)
    assert turn.acquire(0)
    turn.release()
    with ThreadPoolExecutor(1) as thread:
        assert not thread.submit(turn.acquire, 0.01).result()
        turn.release()
        assert thread.submit(turn.acquire, LONG_S).result()


def test_threads_and_coroutines_have_it_in_the_order_in_which_they_asked(turn):
    had = []

    def in_a_thread(name):
        assert turn.acquire(LONG_S)
        had.append(name)
        turn.release()

    async def in_a_loop(name):
        assert await turn.wait(LONG_S)
        had.append(name)
        turn.release()

    assert turn.acquire(0)
    works = [in_a_thread, lambda name: asyncio.run(in_a_loop(name))] * 3
    with ThreadPoolExecutor(len(works)) as threads:
        for name, work in enumerate(works):
            threads.submit(work, name)
            until(lambda name=name: len(turn._queue) == name + 1)
        turn.release()
    assert had == [0, 1, 2, 3, 4, 5]


def test_who_comes_back_at_once_is_behind_those_who_wait(turn):
    """A writer that is never idle, beside a thread."""
    stop = threading.Event()

    async def never_idle():
        while not stop.is_set():
            assert await turn.wait(LONG_S)
            time.sleep(0.001)  # noqa: ASYNC251 - it is busy, as a writer is.
            turn.release()

    with ThreadPoolExecutor(1) as thread:
        writer = thread.submit(asyncio.run, never_idle())
        try:
            for _ in range(20):
                began_s = time.monotonic()
                assert turn.acquire(LONG_S)
                turn.release()
                assert time.monotonic() - began_s < 1
        finally:
            stop.set()
        writer.result()


def test_who_waits_in_vain_leaves_the_queue(turn):
    async def scenario():
        assert await turn.wait(0)
        assert not await turn.wait(0.01)
        waiting = asyncio.ensure_future(turn.wait(LONG_S))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
        turn.release()
        assert await asyncio.to_thread(turn.acquire, 0)

    asyncio.run(scenario())


def test_who_is_cancelled_as_the_turn_comes_passes_it_on(turn):
    async def scenario():
        assert await turn.wait(0)
        waiting = asyncio.ensure_future(turn.wait(LONG_S))
        await asyncio.sleep(0.01)
        turn.release()
        waiting.cancel()  # Before the loop has told it.
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert await turn.wait(0)

    asyncio.run(scenario())


def test_a_loop_that_has_ended_does_not_keep_it(turn):
    """Its coroutine was never told, and nobody else would get the turn."""

    def ended_loop():
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(turn.wait(LONG_S))
        loop.run_until_complete(asyncio.sleep(0.01))
        waiting.cancel()
        loop.run_until_complete(asyncio.wait([waiting]))
        loop.close()

    assert turn.acquire(0)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(ended_loop).result()
        turn.release()
        assert thread.submit(turn.acquire, 0.1).result()


def test_it_is_measured(turn):
    before = sum(meters.buckets_of("alone_us"))
    assert turn.acquire(0)
    turn.release()
    assert sum(meters.buckets_of("alone_us")) == before + 1


@only_sqlite
@pytest.mark.django_db(transaction=True)
def test_who_has_waited_in_the_queue_waits_less_for_another_program(monkeypatch):
    monkeypatch.setattr(SQLite, "patience_s", 2.0)
    queue = turns["default"]
    with ThreadPoolExecutor(1) as another, closing(sqlite3.connect(str(dialect_of().file))) as program:
        program.execute("BEGIN IMMEDIATE")
        assert another.submit(queue.acquire, LONG_S).result()
        threading.Timer(1.5, lambda: another.submit(queue.release)).start()
        began_s = time.monotonic()
        with pytest.raises(StoreBusy), atomic():
            Token.objects.create()
        assert time.monotonic() - began_s < 3.5
