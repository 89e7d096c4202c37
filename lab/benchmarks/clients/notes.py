"""What a client notes while it works."""

from __future__ import annotations

import os
import resource
import time
from array import array
from dataclasses import dataclass, field
from typing import Any

from lab.testing.processes import memory_mb

from ..figures import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What counts: between these moments of the monotonic clock, which all processes share."""

    begins_s: float  # Work starts a little before, so that everything is in its stride.
    ends_s: float


@dataclass(slots=True)
class Notes:
    window: Window
    has_run_dry: bool = False  # There was nothing left to claim.
    started_s: float = field(default_factory=time.monotonic)
    _tasks: int = 0  # Finished in the window.
    _taken: int = 0  # Also outside of it.
    _last_s: float = 0.0  # When the last task was finished.
    _claims_ms: array[float] = field(default_factory=lambda: array("d"))
    _cpu_before_s: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether to go on."""
        return not self.has_run_dry and time.monotonic() < self.window.ends_s

    def done(self, asked_s: float, claimed_s: float, tasks: int) -> None:
        """A claim was asked for and answered at these moments, and now its tasks are finished."""
        self._last_s = time.monotonic()
        self._taken += tasks
        if self.window.begins_s <= self._last_s < self.window.ends_s:
            if self._cpu_before_s is None:
                self._cpu_before_s = _own_cpu_s()
            self._tasks += tasks
            self._claims_ms.append((claimed_s - asked_s) * 1000)

    def summary(self) -> dict[str, Any]:
        """Return the figures. A client that has run dry is judged by the time that it worked."""
        ends_s = self._last_s if self.has_run_dry else self.window.ends_s
        seconds = max(ends_s - self.window.begins_s, 0.001)
        cpu_s = 0.0 if self._cpu_before_s is None else _own_cpu_s() - self._cpu_before_s
        return {
            "seconds": seconds,
            "taken": self._taken,
            "has_run_dry": self.has_run_dry,
            "per_second": self._tasks / seconds,
            "mean_ms": sum(self._claims_ms) / max(len(self._claims_ms), 1),
            "p50_ms": percentile(self._claims_ms, 50),
            "p99_ms": percentile(self._claims_ms, 99),
            "cores": cpu_s / seconds,
            "memory_mb": memory_mb(os.getpid()),
        }


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
