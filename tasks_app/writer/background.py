"""The lifecycle of background work in a server process.

Housekeeping, live counts, schedules, bulk operations and command lists each supply a step: a coroutine that does some
work and returns the seconds until the next one. This module starts and wakes it, logs errors, retries and stops.

Most steps may run in every process at once, because they claim or lock their work. A step for one process at a time
elects it in its transaction: see `when_elected` in totals.py.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

from django.db import connections

from ..database.outage import is_away, translated
from .connection import ended

RETRY_S = 0.5
LONGEST_RETRY_S = 5.0  # After unexpected errors the pause doubles up to this.

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


class BackgroundLoop:
    """Repeats a step on the current event loop, from its creation until it is ended.

    `first_in_s`: the pause before the first step. `least_rest_s`: the shortest pause, even when woken.
    `keeps_connection`: whether the thread keeps its database connection between frequent steps.
    """

    is_busy = False  # No client waits for it: another process continues the work.

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[float]],
        *,
        first_in_s: float = 0.0,
        least_rest_s: float = 0.0,
        keeps_connection: bool = False,
    ) -> None:
        self.stopping = threading.Event()  # Long steps check it now and then.
        self._step = step
        self._least_rest_s = least_rest_s
        self._keeps_connection = keeps_connection
        self._failures = Failures(name)
        self._woken = asyncio.Event()
        self._ending = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)  # Starts with the first step that needs it.
        self._is_cut_off = False
        self._work = asyncio.get_running_loop().create_task(self._run(first_in_s))

    def wake(self) -> None:
        """Do the next step now. Call it on the event loop."""
        self._woken.set()

    def end(self, *, amid_step: bool = False) -> None:
        """Start no further step. The current one is finished, or cancelled if `amid_step`."""
        self.stopping.set()
        self._ending.set()
        self._woken.set()
        if amid_step:
            self._is_cut_off = True
            self._work.cancel()

    async def ended(self) -> None:
        """Wait until the last step has ended. Call it after `end`."""
        if self._is_cut_off:
            await ended(self._work)
        else:
            await asyncio.wait([self._work])

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do a part of the step that waits for the database, in this loop's own thread."""

        def do() -> T:
            is_kept = False
            try:
                result = work(*args, **kwargs)
                is_kept = self._keeps_connection
                return result
            finally:
                if not is_kept:
                    # Django closes connections at the end of a request, and this thread serves none.
                    connections.close_all()

        return await asyncio.get_running_loop().run_in_executor(self._thread, do)

    async def _run(self, rest_s: float) -> None:
        try:
            await self._rest(rest_s)
            while not self.stopping.is_set():
                self._woken.clear()
                try:
                    rest_s = await self._step()
                except Exception as error:  # Any error would otherwise stop the work for good.
                    if self.stopping.is_set():
                        return
                    rest_s = self._failures.note(error)
                else:
                    self._failures.clear()
                await self._rest(rest_s)
        finally:
            self.stopping.set()  # Also after a cancellation, so that the work in the thread ends soon.
            if self._keeps_connection:
                self._thread.submit(connections.close_all)
            self._thread.shutdown(wait=False)

    async def _rest(self, rest_s: float) -> None:
        least_s = min(rest_s, self._least_rest_s)
        # `end` also ends the shortest rest: each server would otherwise stop a second later.
        for event, longest_s in ((self._ending, least_s), (self._woken, rest_s - least_s)):
            with suppress(TimeoutError):
                async with asyncio.timeout(longest_s):
                    await event.wait()


class Failures:
    """Logs errors and decides when to retry. Each kind of error is logged once until `clear`.

    `is_alone`: no housekeeping, which logs database outages, runs in this process.
    """

    def __init__(self, name: str, *, is_alone: bool = False) -> None:
        self._name = name
        self._is_alone = is_alone
        self.clear()

    def clear(self) -> None:
        """Note a success."""
        self._logged: set[type[Exception]] = set()
        self._pause_s = RETRY_S

    def note(self, error: Exception) -> float:
        """Log the error if it is new. Returns the seconds until the retry, few while the database is busy or away."""
        is_expected = translated(error) is not None
        if type(error) not in self._logged and (self._is_alone or not is_away(error)):
            level = logging.WARNING if is_expected else logging.ERROR
            log.log(level, "%s: trying again: %s", self._name, error, exc_info=None if is_expected else error)
        self._logged.add(type(error))
        if is_expected:
            return RETRY_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_RETRY_S)
        return pause_s
