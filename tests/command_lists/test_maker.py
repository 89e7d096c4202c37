"""What makes and settles command lists in a server process."""

import asyncio
import threading

import pytest
from django.db import connections

from tasks_app.commands import ListMaker, bundling
from taskstore.types.command_record import CommandStatus

from .commands import commands_in, lists_in, submitted

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture(autouse=True)
def small_lists(settings, monkeypatch):
    settings.TASKSTORE_COMMAND_LISTS = "*=7/1d/0s"


def made() -> int:
    try:
        return len(lists_in("default"))
    finally:
        connections.close_all()


async def stopped(work: ListMaker) -> None:
    work.end()
    await work.ended()


def play(story) -> None:
    async def within_patience() -> None:
        async with asyncio.timeout(20):
            await story()

    asyncio.run(within_patience())


async def until_made(count: int) -> None:
    while await asyncio.to_thread(made) < count:  # noqa: ASYNC110 - It happens in the database.
        await asyncio.sleep(0.01)


def test_it_makes_lists_one_round_after_the_other_without_a_rest(monkeypatch):
    monkeypatch.setattr(bundling, "PAUSE_S", 3_600.0)
    commands = submitted(70)

    async def story():
        work = ListMaker()
        await until_made(10)
        await stopped(work)  # Amid its rest.

    play(story)
    assert sum(len(each.commands) for each in lists_in("default")) == len(commands)
    assert commands_in("default", CommandStatus.NEW) == []


def test_it_makes_lists_also_while_tidying_fails(monkeypatch, caplog):
    def tidy() -> None:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(bundling, "tidy", tidy)
    submitted(7)

    async def story():
        work = ListMaker()
        await until_made(1)
        await stopped(work)

    play(story)
    assert caplog.messages == ["command lists: trying again: of all things"]


def test_at_its_end_it_finishes_its_round(monkeypatch):
    begun, may_go = threading.Event(), threading.Event()
    look_after = bundling.look_after

    def held_up() -> bool:
        begun.set()
        assert may_go.wait(20)
        return look_after()

    monkeypatch.setattr(bundling, "look_after", held_up)
    submitted(7)

    async def story():
        work = ListMaker()
        assert await asyncio.to_thread(begun.wait, 20)
        work.end()
        may_go.set()
        await work.ended()

    play(story)
    assert made() == 1
