"""What runs in the background of a server process: how it starts, is woken, fails, tries again, and ends."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tasks_app.writer import background
from tasks_app.writer.background import BackgroundLoop
from taskstore.errors import StoreBusy

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
@pytest.mark.parametrize("least_rest_s", [0.0, HOUR_S])
def test_it_ends_at_once_amid_its_rest(least_rest_s):
    async def story():
        steps = Steps()
        loop = BackgroundLoop("counts", steps, least_rest_s=least_rest_s)
        await steps.next()
        await asyncio.sleep(0)  # Now it rests.
        await stopped(loop)
        assert steps.done == 1

    play(story)


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
