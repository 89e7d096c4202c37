"""Coroutine functions run on one event loop, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError

from .attempts import Attempt
from .handlers import How, Outcome

END_S = 1.0


class EventLoop:
    """An attempt that is lost is cancelled."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="event loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, attempt: Attempt) -> Outcome:
        """Waits for its end. Other threads may do the same."""
        work = attempt.handler.attempt_async(attempt.task, attempt.context)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        attempt.on_interrupt(future.cancel)
        try:
            return future.result()
        except CancelledError:
            return Outcome(how=How.LOST) if attempt.is_lost else Outcome(how=How.FAILED, error="it was cancelled")

    def end(self) -> None:
        """What still runs is cancelled, and given a moment for that."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join(2 * END_S)

    async def _end(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=END_S)
        self._loop.stop()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()
