"""Schedules as they are asked for and answered with."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Decoder
from rest_framework.request import Request

from ..schedules import DueJob, DueTask, LastRun, Schedule, SchedulePause, SchedulePlan, ScheduleState
from ..wire import strict_json
from ..wire.reading import value_of
from ..wire.scalars import Int64, Reason
from . import bodies


class ScheduleRequest(SchedulePlan, frozen=True, kw_only=True):
    """What is to be added, and when."""

    reason: Reason = ""

    @property
    def plan(self) -> SchedulePlan:
        return SchedulePlan(**{name: getattr(self, name) for name in SchedulePlan.__struct_fields__})

    @classmethod
    def read(cls, request: Request) -> ScheduleRequest:
        """Raises InvalidInput that names every wrong field."""
        body = bodies.body_of(request)
        asked = value_of(strict_json.read(body), cls)
        if asked.job is UNSET:
            return asked
        # In a body null counts as absent, but not among the arguments of a function.
        written = json.loads(body)["job"]
        arguments = {"args": tuple(written.get("args") or ()), "kwargs": written.get("kwargs") or {}}
        return msgspec.structs.replace(asked, job=msgspec.structs.replace(asked.job, **arguments))


class ScheduleAnswer(Struct, frozen=True, kw_only=True):
    """A schedule. Of one whose data makes no sense there is no more than its name and why."""

    name: str
    state: ScheduleState
    error: Annotated[str, Meta(description="Why it is broken.")]
    id: Annotated[Int64, Meta(description="Of the task that it is now.")]
    origin: Int64
    cron: str | UnsetType = UNSET
    in_words: Annotated[str | UnsetType, Meta(description="The expression in plain English, if that is short.")] = UNSET
    zone: str | UnsetType = UNSET
    catch_up: str | UnsetType = UNSET
    task: DueTask | UnsetType = UNSET
    job: DueJob | UnsetType = UNSET
    next: Annotated[int | None, Meta(description="When it is due; null: not before somebody sees to it.")]
    last: Annotated[LastRun | None, Meta(description="null: it was never due.")] = None
    paused: Annotated[SchedulePause | None, Meta(description="null: it is not paused.")] = None

    @classmethod
    def of(cls, found: Schedule) -> ScheduleAnswer:
        record = found.record
        known: dict[str, Any] = {
            "id": found.task.id,
            "origin": found.task.origin,
            "next": found.next_ms,
            "error": found.error,
        }
        if record is None:
            return cls(name=found.name, state=found.state, **known)
        return cls(
            name=found.name,
            state=found.state,
            cron=record.cron,
            in_words=record.timetable.in_words,
            zone=record.zone,
            catch_up=record.catch_up,
            task=record.task,
            job=record.job,
            last=None if record.last is UNSET else record.last,
            paused=None if record.paused is UNSET else record.paused,
            **known,
        )


# msgspec works a type out when it first meets it; two threads that make it do so at the same moment crash the process.
Decoder(ScheduleRequest)
