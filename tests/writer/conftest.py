"""A writer on a loop of the test's own."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from tasks_app.writer.writer import Bounds, Writer
from tests.behaviour.conftest import Clock, clock

__all__ = ["Clock", "clock"]

Scenario = Callable[[Writer], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture
def play(transactional_db: None) -> Play:
    """Runs a scenario, a coroutine that gets a writer, to its end."""

    def run(scenario: Scenario, bounds: Bounds | None = None) -> None:
        asyncio.run(with_writer(scenario, bounds))

    return run


async def with_writer(scenario: Scenario, bounds: Bounds | None) -> None:
    writer = Writer.start(bounds=bounds)
    try:
        await asyncio.wait_for(scenario(writer), timeout=60)
    finally:
        await writer.stop()
        await sync_to_async(connections.close_all)()  # Of the thread beside this loop.
