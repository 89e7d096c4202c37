"""What runs in the background of a server process: how it starts, is woken, fails, tries again, and ends."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tasks_app.writer import background
from tasks_app.writer.background import LONGEST_RETRY_S, RETRY_S, BackgroundLoop, Failures
from taskstore.errors import StoreBusy, StoreUnavailable

HOUR_S = 3_600.0


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def within_patience() -> None:
        async with asyncio.timeout(20):
            await story()

    asyncio.run(within_patience())


class Steps:
    """A step that notes that it was done, and rests for so long."""

    def __init__(self, rest_s: float = HOUR_S) -> None:
        self.rest_s = rest_s
        self.done = 0
        self.news = asyncio.Event()

    async def __call__(self) -> float:
        self.done += 1
        self.news.set()
        return self.rest_s

    async def next(self) -> None:
        await self.news.wait()
        self.news.clear()


async def stopped(loop: BackgroundLoop) -> None:
    loop.end()
    await loop.ended()


@pytest.mark.once
def test_it_does_its_step_at_once_and_then_again_after_each_rest():
    async def story():
        steps = Steps(rest_s=0.0)
        loop = BackgroundLoop("counts", steps)
        for _ in range(3):
            await steps.next()
        await stopped(loop)

    play(story)


@pytest.mark.once
def test_it_is_woken_from_its_rest():
    async def story():
        steps = Steps()
        loop = BackgroundLoop("counts", steps, first_in_s=HOUR_S)
        for number in range(1, 4):
            loop.wake()
            await steps.next()
            assert steps.done == number
        await stopped(loop)

    play(story)


@pytest.mark.once
@pytest.mark.parametrize("least_rest_s", [0.0, HOUR_S])
@pytest.mark.parametrize("first_in_s", [0.0, HOUR_S])
def test_it_ends_at_once_amid_its_rest(first_in_s, least_rest_s):
    async def story():
        steps = Steps()
        loop = BackgroundLoop("counts", steps, first_in_s=first_in_s, least_rest_s=least_rest_s)
        await asyncio.sleep(0.01)
        await stopped(loop)
        done = steps.done
        loop.wake()
        await asyncio.sleep(0.01)
        assert steps.done == done == (first_in_s == 0.0)

    play(story)


@pytest.mark.once
def test_at_its_end_it_finishes_its_step_and_begins_no_other():
    async def story():
        begun, may_go, done = threading.Event(), threading.Event(), list[str]()

        def work() -> None:
            begun.set()
            assert may_go.wait(20)
            done.append("whole")

        async def step() -> float:
            await loop.aside(work)
            return 0.0

        loop = BackgroundLoop("counts", step)
        await asyncio.to_thread(begun.wait)
        loop.end()
        ending = asyncio.create_task(loop.ended())
        await asyncio.sleep(0.01)
        assert not ending.done()
        may_go.set()
        await ending
        assert done == ["whole"]

    play(story)


@pytest.mark.once
def test_it_ends_amid_its_step_when_told_so():
    async def story():
        steps = Steps()

        async def step() -> float:
            await steps()
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        loop = BackgroundLoop("counts", step)
        await steps.next()
        loop.end(amid_step=True)
        await loop.ended()
        assert steps.done == 1

    play(story)


@pytest.mark.once
def test_it_survives_errors_and_logs_each_kind_once_until_it_works_again(monkeypatch, caplog):
    monkeypatch.setattr(background, "RETRY_S", 0.0)
    troubles = iter([ValueError("one"), ValueError("two"), StoreBusy("locked"), None, ValueError("three")])

    async def story():
        steps = Steps()

        async def step() -> float:
            await steps()
            if trouble := next(troubles, None):
                raise trouble
            return 0.0

        loop = BackgroundLoop("counts", step)
        while steps.done < 6:
            await steps.next()
        await stopped(loop)

    play(story)
    assert [(record.levelname, record.getMessage(), bool(record.exc_info)) for record in caplog.records] == [
        ("ERROR", "counts: trying again: one", True),
        ("WARNING", "counts: trying again: locked", False),
        ("ERROR", "counts: trying again: three", True),
    ]


@pytest.mark.once
def test_it_tries_again_soon_while_the_database_is_away_and_later_and_later_after_a_defect():
    failures = Failures("counts")
    assert {failures.note(StoreUnavailable("away")) for _ in range(10)} == {RETRY_S}
    pauses = [failures.note(ZeroDivisionError()) for _ in range(2_000)]
    assert pauses[:3] == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S]
    assert pauses[-1] == LONGEST_RETRY_S
    failures.clear()
    assert failures.note(ZeroDivisionError()) == RETRY_S


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize("keeps_connection", [False, True])
def test_its_thread_lets_go_of_its_connection(keeps_connection):
    """After each step, or at the end and after an error."""
    kept, used = list[bool](), set[BaseDatabaseWrapper]()

    def work(fails: bool) -> None:
        used.add(connections["default"])
        kept.append(connection.connection is not None)
        connection.ensure_connection()
        if fails:
            raise ZeroDivisionError

    async def story():
        steps = Steps()
        loop = BackgroundLoop("counts", steps, keeps_connection=keeps_connection)
        await steps.next()
        await loop.aside(work, False)
        with pytest.raises(ZeroDivisionError):
            await loop.aside(work, True)
        await loop.aside(work, False)
        thread = loop._thread
        await stopped(loop)
        thread.shutdown()

    play(story)
    assert kept == [False, keeps_connection, False]
    assert used.pop().connection is None
