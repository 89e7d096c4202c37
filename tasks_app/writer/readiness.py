"""Whether this process wants more work. Not any more once it was told to end, though it still does what comes."""

from __future__ import annotations

from collections.abc import Callable


class Readiness:
    def __init__(self) -> None:
        self.is_withdrawn = False
        self._listeners: list[Callable[[], object]] = []

    def withdraw(self) -> None:
        """Whoever asks is sent elsewhere from now on."""
        self.is_withdrawn = True
        for listener in self._listeners:
            listener()

    def when_withdrawn(self, listener: Callable[[], object]) -> None:
        """It is called on the thread that withdraws: the server's loop."""
        self._listeners.append(listener)


readiness = Readiness()  # Of this process.
