"""The messages between a worker and its runner, sent as pickles over a socket pair, and the clock they share."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from ..types.command_record import Command, Output, Run

if TYPE_CHECKING:
    from ..types.tasks import Task


@dataclass(frozen=True, slots=True)
class Clock:
    """The store's time, learned from a claim, because this machine's clock may be days off."""

    ahead_s: float  # Ahead of the monotonic clock, which all processes of a machine share.

    @classmethod
    def of_claim(cls, task: Task, duration_ms: int) -> Self:
        """Return the clock according to a task that was just claimed for that long."""
        return cls((task.available_at_ms - duration_ms) / 1_000 - time.monotonic())

    def now_s(self) -> int:
        """Return whole seconds since the Epoch."""
        return int(time.monotonic() + self.ahead_s)


class Order(StrEnum):
    """An order to a runner while it runs a list."""

    FINISH = "finish"  # Start no further command.
    STOP = "stop"  # Also kill the running command and discard its result.


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How commands are run."""

    worker: str
    shell: str
    cwd: str
    env: Mapping[str, str]
    memory_bytes: int | None  # Of a command with all its child processes. None: no limit.
    output_bytes: int  # Kept of each output.
    most_bytes: int  # After about so much output no further command of a list is started.


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The commands of a list, each with its time limit in seconds."""

    commands: Sequence[tuple[Command, float]]
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote:
    """The output so far of the command at this position, which is still running."""

    place: int
    started: int
    out: Output
    err: Output
    progress: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of the command at this position."""

    place: int
    run: Run
    left: int  # The number of its processes that outlived it and were killed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The end of the list. Commands without a result were too late or not started."""
