"""Send the progress of running tasks to the store, once a second."""

from __future__ import annotations

import logging
import threading

from ..client.errors import NotAllowed, NotFound
from ..errors import InvalidInput, NotHeld, TaskStoreError
from .store import Store

logger = logging.getLogger(__name__)

SEND_EVERY_S = 1.0
REFUSED = (NotFound, NotHeld, NotAllowed, InvalidInput)  # Sending the report again can't help.


class Reports:
    """The latest progress of each task that has any. A thread of the worker calls `send` every second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._latest: dict[int, tuple[float, str]] = {}  # By origin, which stays when a lease is renewed.
        self._turn = threading.Lock()

    def note(self, origin: int, done: float, text: str) -> None:
        """Keep a valid report until it is sent, in place of the previous one. Any thread may call it."""
        with self._turn:
            self._latest[origin] = done, text

    def forget(self, origin: int) -> None:
        """Drop a report that has not been sent."""
        with self._turn:
            self._latest.pop(origin, None)

    def send(self) -> None:
        """Send what is new. If the store is unavailable, the rest is sent the next time."""
        with self._turn:
            reports, self._latest = self._latest, {}
        while reports:
            origin, (done, text) = next(iter(reports.items()))
            try:
                self._store.report_progress(origin, done, text)
            except REFUSED as problem:
                logger.debug("the store rejected the progress of task %d: %s", origin, problem)
            except TaskStoreError:
                with self._turn:
                    self._latest = reports | self._latest  # Newer ones win.
                raise
            del reports[origin]
