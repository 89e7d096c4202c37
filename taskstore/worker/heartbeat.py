"""The threads that report to the store: heartbeats of the worker, and the progress of its tasks."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..client.errors import NotAllowed, NotFound, UnexpectedAnswer
from ..errors import InvalidInput, NotHeld, TaskStoreError
from .lease_keeper import AWAY, Outage
from .store import Store

logger = logging.getLogger(__name__)

BEAT_S = 10.0  # A worker counts as late after 30 s, so one heartbeat may fail.

Chore = tuple[
    float, Callable[[], object]
]  # A period in seconds, and the function to call at once and then each period.


SEND_EVERY_S = 1.0
REFUSED = (NotFound, NotHeld, NotAllowed, InvalidInput)  # Sending the report again can't help.


class Heartbeat:
    """Sends heartbeats with the current `info`, and calls the `chores`, which may wait for the store."""

    def __init__(
        self,
        store: Store,
        name: str,
        groups: Iterable[str],
        info: Callable[[], Mapping[str, Any]],
        outage: Outage,
        chores: Sequence[Chore],
    ) -> None:
        self._store, self._name, self._groups, self._info = store, name, tuple(groups), info
        self._chores = [(BEAT_S, self._beat), *chores]
        self._outage = outage
        self.asked_at = math.inf  # When a report was begun that is not answered, by the monotonic clock.
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._report_until_stopped, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread, which also sends the first heartbeat."""
        self._thread.start()

    def stop(self, patience_s: float = 2) -> None:
        """Send the last heartbeat, waiting for the store no longer than that."""
        self._stopping.set()
        self._thread.join(patience_s)

    def beat(self) -> object:
        """Send a heartbeat from the caller's thread. Returns the answer; None if the store is unavailable."""
        try:
            return self._beat()
        except TaskStoreError as problem:
            logger.debug("a report to the store failed: %s", problem)
            return None

    def is_answered(self) -> bool:
        """Send a heartbeat from the caller's thread. Returns whether the store is available, whatever it answers."""
        try:
            self._beat()
        except (*AWAY, UnexpectedAnswer):
            return False
        except TaskStoreError as problem:
            logger.debug("a report to the store failed: %s", problem)
        return True

    def _report_until_stopped(self) -> None:
        due_at = [time.monotonic()] * len(self._chores)
        while not self._stopping.wait(max(0, min(due_at) - time.monotonic())):
            for place, (every_s, act) in enumerate(self._chores):
                if due_at[place] <= time.monotonic():
                    self._try(act)
                    due_at[place] = time.monotonic() + every_s
        self._try(partial(self._beat, stopped=True))

    def _try(self, act: Callable[[], object]) -> None:
        self.asked_at = time.monotonic()
        try:
            act()
        except Exception as problem:  # Not essential, and the next attempt may succeed.
            logger.debug("a report to the store failed: %s", problem)
        self.asked_at = math.inf

    def _beat(self, **more: Any) -> object:
        answer = self._store.heartbeat(
            name=self._name,
            host=socket.gethostname(),
            pid=os.getpid(),
            groups=self._groups,
            version=own_version(),
            info={**self._info(), **more},
        )
        self._outage.end()
        return answer


def own_version() -> str:
    """Return the version of the package; "" in a checkout that is not installed."""
    try:
        return version("taskstore")
    except PackageNotFoundError:
        return ""


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
