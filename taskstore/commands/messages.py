"""What a worker and its runner tell each other, as pickles over a pair of sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..types.command_record import Command, Output, Run
from .clock import Clock


class Order(StrEnum):
    """To a runner that runs a list."""

    FINISH = "finish"  # Nothing more is begun.
    STOP = "stop"  # Nor does what is under way go on; nothing comes of it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How all commands are run."""

    worker: str
    shell: str
    cwd: str
    env: Mapping[str, str]
    memory_bytes: int | None  # Of a command with all that it starts. None: no limit.
    output_bytes: int  # Of each output.
    most_bytes: int  # Of the outputs of a list, about: then it is over.


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The commands of a list, each with how long it may take."""

    commands: Sequence[tuple[Command, float]]
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote:
    """The command in this place has been running for a while, and has written so much so far."""

    place: int
    started: int
    out: Output
    err: Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What came of the command in this place."""

    place: int
    run: Run
    left: int  # So many processes of it were still there at its end, and were killed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Nothing more comes: those that were not told of were too late, or not begun."""
