"""How a worker comes to its end: nothing more is begun, what runs may go on for a while, then it is killed."""

from __future__ import annotations

import math
import threading
import time

PATIENCE_S = 5.0  # With a store that does not answer, after the grace.


class Stopping:
    """`grace_s`: how long commands may go on."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self._begun = threading.Event()
        self._grace_ends_at = math.inf

    def begin(self) -> None:
        if not self._begun.is_set():
            self._grace_ends_at = time.monotonic() + self.grace_s
            self._begun.set()

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    @property
    def grace_is_over(self) -> bool:
        return time.monotonic() > self._grace_ends_at

    @property
    def left_s(self) -> float:
        """Until all has to be written."""
        return max(0.0, self._grace_ends_at + PATIENCE_S - time.monotonic())

    def wait(self, seconds: float) -> None:
        """So long, or until it begins."""
        self._begun.wait(seconds)
