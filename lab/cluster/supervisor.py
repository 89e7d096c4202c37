"""Who starts what has died again, as systemd does with `Restart=always`."""

from __future__ import annotations

from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Protocol, Self

from lab.chaos import CannotTry

RESTART_S = 0.1  # systemd's own RestartSec.


class Supervised(Protocol):
    """Something that runs, is killed and begins anew."""

    @property
    def is_running(self) -> bool: ...

    def begin(self) -> None: ...

    def kill(self) -> None: ...


class Supervisor:
    """Watches what was begun. At the end of the `with` block all of it is killed, the last one first."""

    def __init__(self) -> None:
        self._watched: list[Supervised] = []
        self._held: list[Supervised] = []
        self._lock = Lock()  # While something is killed, it must not begin.
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
        """kill -9; it is started again at once."""
        with self._lock:
            each.kill()

    def take_away(self, each: Supervised) -> None:
        """kill -9, and it stays away: its machine is gone."""
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
        """Start what has died and was not taken away."""
        with self._lock:
            for each in self._watched:
                if each not in self._held and not each.is_running:
                    # Its port may be taken for another moment: it is tried again.
                    with suppress(CannotTry):
                        each.begin()
