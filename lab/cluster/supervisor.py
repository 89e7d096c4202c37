"""Restart processes that died, like systemd with `Restart=always`."""

from __future__ import annotations

from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Protocol, Self

from lab.testing import CannotTry

RESTART_S = 0.1  # systemd's own RestartSec.


class Supervised(Protocol):
    """A process that can be killed and started again."""

    @property
    def is_running(self) -> bool: ...

    def begin(self) -> None: ...

    def kill(self) -> None: ...


class Supervisor:
    """Restarts units that die. At the end of the `with` block it kills all of them, the last one first."""

    def __init__(self) -> None:
        self._watched: list[Supervised] = []
        self._held: list[Supervised] = []
        self._lock = Lock()  # Don't start a unit while it is being killed.
        self._end = Event()
        self._thread = Thread(target=self._watch, name="supervisor")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        for each in reversed(self._watched):
            each.kill()

    def begin(self, each: Supervised) -> None:
        with self._lock:
            self._watched.append(each)
            each.begin()

    def kill(self, each: Supervised) -> None:
        """Kill a unit with kill -9; it is restarted at once."""
        with self._lock:
            each.kill()

    def take_away(self, each: Supervised) -> None:
        """Kill a unit with kill -9 without restarting it, like a lost machine."""
        with self._lock:
            self._held.append(each)
            each.kill()

    def give_back(self, each: Supervised) -> None:
        with self._lock:
            self._held.remove(each)

    def _watch(self) -> None:
        while not self._end.wait(RESTART_S):
            self.look()

    def look(self) -> None:
        """Start units that died and were not removed."""
        with self._lock:
            for each in self._watched:
                if each not in self._held and not each.is_running:
                    # Its port may still be taken, so try again.
                    with suppress(CannotTry):
                        each.begin()
