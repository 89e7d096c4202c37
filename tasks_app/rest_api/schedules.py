"""Schedules over REST."""

from __future__ import annotations

from typing import TypeVar

from rest_framework.exceptions import NotFound

from taskstore import endpoints
from taskstore.types.requests import Nothing
from taskstore.types.schedules import ReasonBySchedule, Schedule, ScheduleByName, ScheduleRequest
from taskstore.types.tasks import Task, answer_of

from .. import schedules as verbs
from .base import Who, serves

Found = TypeVar("Found")


@serves(endpoints.SCHEDULES)
def schedules(asked: Nothing, who: Who) -> list[Schedule]:
    return verbs.schedules(who.scope)


@serves(endpoints.SCHEDULE)
def schedule(asked: ScheduleByName, who: Who) -> Schedule:
    return _there(verbs.schedule(asked.name, who.scope), asked.name)


@serves(endpoints.PUT_SCHEDULE)
def put_schedule(asked: ScheduleRequest, who: Who) -> Schedule:
    who.must_reach(asked.group)
    made, _ = verbs.put(asked.name, asked.plan, who.actor.because(asked.reason))
    return made


@serves(endpoints.DELETE_SCHEDULE)
def delete_schedule(asked: ScheduleByName, who: Who) -> Schedule:
    return _there(verbs.delete(asked.name, who.actor), asked.name)


@serves(endpoints.PAUSE_SCHEDULE)
def pause_schedule(asked: ReasonBySchedule, who: Who) -> Schedule:
    return _there(verbs.pause(asked.name, who.actor.because(asked.reason)), asked.name)


@serves(endpoints.RESUME_SCHEDULE)
def resume_schedule(asked: ReasonBySchedule, who: Who) -> Schedule:
    return _there(verbs.resume(asked.name, who.actor.because(asked.reason)), asked.name)


@serves(endpoints.RUN_SCHEDULE)
def run_schedule(asked: ReasonBySchedule, who: Who) -> Task:
    return answer_of(_there(verbs.run_now(asked.name, who.actor.because(asked.reason)), asked.name))


def _there(found: Found | None, name: str) -> Found:
    if found is None:
        raise NotFound(f"Schedule {name} does not exist.")
    return found
