"""Schedules, and the tasks and jobs that they add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from .job_record import DEFAULT_QUEUE, JobOptions
from .records import MOST
from .scalars import Int64, prepare

Milliseconds = Annotated[int, Meta(ge=0, le=MOST, description="Milliseconds since the Epoch.")]


class ScheduleState(StrEnum):
    ON = "on"
    PAUSED = "paused"
    BROKEN = "broken"  # Its error says why.


class CatchUp(StrEnum):
    """How to treat due times that passed while no server was running."""

    SKIP = "skip"
    LATEST = "latest"  # Add one for all of them.
    ALL = "all"  # Add one for each, at most the newest thousand.


class DueTask(Struct, frozen=True, kw_only=True):
    """The task that a schedule adds."""

    group: str
    data: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0


class DueJob(Struct, frozen=True, kw_only=True):
    """The job that a schedule enqueues."""

    function: Annotated[str, Meta(description="The dotted path of the function.")]
    args: Annotated[Sequence[Any], Meta(description="Any JSON.")] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    options: JobOptions = JobOptions()


class LastRun(Struct, frozen=True, kw_only=True):
    """The last run of a schedule."""

    due_ms: Milliseconds = field(name="due")
    at_ms: Milliseconds = field(name="at")  # When it was added.
    origin: Annotated[int, Meta(ge=0, le=2**63 - 1, description="The id of the task that was added.")]


class SchedulePause(Struct, frozen=True, kw_only=True):
    """The pause of a schedule."""

    by: str
    at_ms: Milliseconds = field(name="at")
    reason: str = ""


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule. If its data is invalid, it has only a name, its ids and an error."""

    name: str
    state: ScheduleState
    error: Annotated[str, Meta(description="Why it is broken; otherwise empty.")]
    id: Annotated[Int64, Meta(description="The current id of its task.")]
    origin: Int64
    cron: str = ""
    in_words: Annotated[str, Meta(description="The cron expression in plain English, if that is short.")] = ""
    zone: str = ""
    catch_up: CatchUp | None = None
    task: DueTask | None = None
    job: DueJob | None = None
    next_ms: Annotated[int | None, Meta(description="The next due time; null while it is paused or broken.")] = field(
        name="next"
    )
    last: Annotated[LastRun | None, Meta(description="null: it has not run.")]
    paused: Annotated[SchedulePause | None, Meta(description="null: it is not paused.")]


prepare(Schedule)
