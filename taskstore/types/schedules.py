"""Schedules: what is added, and when."""

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
    """What becomes of the due times that passed while no server ran."""

    SKIP = "skip"
    LATEST = "latest"  # One for all of them.
    ALL = "all"  # One for each, the newest thousand at most.


class DueTask(Struct, frozen=True, kw_only=True):
    """The task that is added when it is due."""

    group: str
    data: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0


class DueJob(Struct, frozen=True, kw_only=True):
    """The job that is enqueued when it is due."""

    function: Annotated[str, Meta(description="The dotted path of the function.")]
    args: Annotated[Sequence[Any], Meta(description="Any JSON.")] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    options: JobOptions = JobOptions()


class LastRun(Struct, frozen=True, kw_only=True):
    """What a schedule did last."""

    due_ms: Milliseconds = field(name="due")
    at_ms: Milliseconds = field(name="at")  # When it was added.
    origin: Annotated[int, Meta(ge=0, le=2**63 - 1, description="The id of the task that was added.")]


class SchedulePause(Struct, frozen=True, kw_only=True):
    """Who stopped it, when and why."""

    by: str
    at_ms: Milliseconds = field(name="at")
    reason: str = ""


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule. Of one whose data makes no sense there is no more than its name and why."""

    name: str
    state: ScheduleState
    error: Annotated[str, Meta(description="Why the schedule is broken.")]
    id: Annotated[Int64, Meta(description="The current id of its task.")]
    origin: Int64
    cron: str = ""
    in_words: Annotated[str, Meta(description="The expression in plain English, if that is short.")] = ""
    zone: str = ""
    catch_up: CatchUp | None = None
    task: DueTask | None = None
    job: DueJob | None = None
    next_ms: Annotated[int | None, Meta(description="The next due time; null while it is paused or broken.")] = field(
        name="next"
    )
    last: Annotated[LastRun | None, Meta(description="null if it was never due.")]
    paused: Annotated[SchedulePause | None, Meta(description="null if it is not paused.")]


prepare(Schedule)
