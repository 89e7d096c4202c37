"""Async tests without a plugin."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from asgiref.sync import async_to_sync


def in_event_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in an event loop of its own.

    Database calls run in the test's own thread, so that they see the test's transaction.
    """

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        async_to_sync(test)(*arguments, **fixtures)

    return run
