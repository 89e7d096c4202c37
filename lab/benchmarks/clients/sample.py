"""What a worker process notes while it works."""

from __future__ import annotations

import os
import resource
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.testing.processes import memory_mb

from ..figures import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When to work, and when it counts: moments of the monotonic clock, which all processes share."""

    begins_s: float  # Work starts a little before, so that everything is in its stride.
    ends_s: float


@dataclass(slots=True)
class Sample:
    """What one worker process did."""

    tasks: int = 0  # Finished in the window.
    claims_ms: array[float] = field(default_factory=lambda: array("d"))  # How long each claim in the window took.
    cpu_s: float = 0.0  # Used in the window.
    memory_mb: float = 0.0  # At its end.
    taken: int = 0  # Tasks that it took, also outside of the window.
    last_s: float = 0.0  # When it finished its last task.
    has_run_dry: bool = False  # There was nothing left to claim.


@dataclass(slots=True)
class Notes:
    """Makes the sample of this process."""

    window: Window
    sample: Sample = field(default_factory=Sample)
    started_s: float = field(default_factory=time.monotonic)
    _cpu_before_s: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether to go on."""
        return not self.sample.has_run_dry and time.monotonic() < self.window.ends_s

    def done(self, asked_s: float, claimed_s: float, tasks: int) -> None:
        """A claim was asked for and answered at these moments, and now its tasks are finished."""
        now_s = time.monotonic()
        sample, window = self.sample, self.window
        sample.taken += tasks
        sample.last_s = now_s
        if window.begins_s <= now_s < window.ends_s:
            if self._cpu_before_s is None:
                self._cpu_before_s = _own_cpu_s()
            sample.tasks += tasks
            sample.claims_ms.append((claimed_s - asked_s) * 1000)

    def end(self) -> Sample:
        self.sample.memory_mb = memory_mb(os.getpid())
        if self._cpu_before_s is not None:
            self.sample.cpu_s = _own_cpu_s() - self._cpu_before_s
        return self.sample


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def summary(samples: Sequence[Sample], window: Window) -> dict[str, Any]:
    """All worker processes together, as the figures that go to whoever gave the order."""
    has_run_dry = any(sample.has_run_dry for sample in samples)
    ends_s = max(sample.last_s for sample in samples) if has_run_dry else window.ends_s
    seconds = max(ends_s - window.begins_s, 0.001)
    claims_ms = [ms for sample in samples for ms in sample.claims_ms]
    return {
        "seconds": seconds,
        "taken": sum(sample.taken for sample in samples),
        "has_run_dry": has_run_dry,
        "per_second": sum(sample.tasks for sample in samples) / seconds,
        "mean_ms": sum(claims_ms) / max(len(claims_ms), 1),
        "p50_ms": percentile(claims_ms, 50),
        "p99_ms": percentile(claims_ms, 99),
        "cores": sum(sample.cpu_s for sample in samples) / seconds,
        "memory_mb": sum(sample.memory_mb for sample in samples),
    }
