"""Who writes to an SQLite file next: within a process, in the order in which they asked.

SQLite has one writer at a time. Who finds the file locked sleeps and tries again, and beside a writer that is never
idle may never be lucky. So threads and coroutines queue here before they begin.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass

from ..core.meters import meters


@dataclass(slots=True, eq=False)
class Ticket:
    """A place in the queue. `call`: tells its owner, from any thread, that it has the turn."""

    owner: object
    call: Callable[[], object]


class Turn:
    """A lock that is fair, that the thread which has it may take again, and that coroutines can wait for."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._queue = deque[Ticket]()
        self._owner: object = None
        self._depth = 0
        self._since_s = 0.0

    def acquire(self, most_s: float) -> bool:
        """Wait for the turn in a thread. Returns False if it did not come within so many seconds."""
        came = threading.Event()
        ticket = Ticket(threading.get_ident(), came.set)
        return self._is_taken(ticket) or came.wait(most_s) or not self._is_given_up(ticket)

    async def wait(self, most_s: float) -> bool:
        """Wait for the turn in a coroutine. Returns False if it did not come within so many seconds."""
        loop, came = asyncio.get_running_loop(), asyncio.Event()
        ticket = Ticket(object(), lambda: loop.call_soon_threadsafe(came.set))
        if self._is_taken(ticket):
            return True
        try:
            async with asyncio.timeout(most_s):
                await came.wait()
            return True
        except TimeoutError:
            return not self._is_given_up(ticket)
        except BaseException:
            if not self._is_given_up(ticket):
                self.release()
            raise

    def release(self) -> None:
        """Let the next one have it."""
        with self._guard:
            self._depth -= 1
            if self._depth:
                return
            meters.note_alone(time.monotonic() - self._since_s)
            self._owner = None
            if self._queue:
                ticket = self._queue.popleft()
                self._give(ticket)
                ticket.call()

    def _is_taken(self, ticket: Ticket) -> bool:
        with self._guard:
            if self._owner == ticket.owner:
                self._depth += 1
            elif self._owner is None:
                self._give(ticket)
            else:
                self._queue.append(ticket)
                return False
            return True

    def _is_given_up(self, ticket: Ticket) -> bool:
        """Leave the queue. Returns False when the turn came at the last moment."""
        with self._guard:
            if ticket in self._queue:
                self._queue.remove(ticket)
                return True
            return False

    def _give(self, ticket: Ticket) -> None:
        self._owner, self._depth, self._since_s = ticket.owner, 1, time.monotonic()


turns: defaultdict[str, Turn] = defaultdict(Turn)  # By the alias of the database.
