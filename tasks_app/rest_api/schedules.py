"""Cron-like schedules: list, make, stop, let go on, run at once, delete."""

from __future__ import annotations

from typing import Any, TypeVar

from rest_framework.exceptions import NotFound
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from .. import schedules
from ..policy import Action
from ..schedules import Schedule
from ..wire.tasks import TaskAnswer
from . import bodies
from .asked import ReasonRequest
from .base import View
from .description import FAILURES, NOT_THERE, REFERENCE, endpoint, path
from .queries import query_of, refuse_broken_path
from .schedule_bodies import ScheduleAnswer, ScheduleRequest

Found = TypeVar("Found")

SCHEDULES = {"type": "array", "items": {"$ref": REFERENCE.format(name=ScheduleAnswer.__name__)}}
NAME = path("name", {"type": "string", "maxLength": 100})
ALSO_NOT_THERE = FAILURES | NOT_THERE


class Schedules(View):
    """The schedules that add to groups that the token may touch, sorted by name."""

    needs = Action.SEE_PAYLOADS

    @endpoint("schedules", answer=SCHEDULES)
    def get(self, request: Request) -> Response:
        query_of(request)
        return Response([ScheduleAnswer.of(each) for each in schedules.schedules(self.scope())])


class ScheduleView(View):
    def asked(self, **more: Any) -> dict[str, Any]:
        """In whose name a verb is done, and within which groups."""
        return {"by": self.by(), "scope": self.scope(), **more}

    def asked_why(self, request: Request) -> dict[str, Any]:
        """The same, with the reason that the body gives."""
        refuse_broken_path(request)
        return self.asked(reason=bodies.read(request, ReasonRequest).reason)


class OneSchedule(ScheduleView):
    """A schedule by its name: a group that the token may not touch hides it. To change one, operate is needed."""

    needs = Action.SEE_PAYLOADS

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method not in SAFE_METHODS:
            self.needs = Action.OPERATE
        super().initial(request, *args, **kwargs)

    @endpoint("schedule", answer=ScheduleAnswer, parameters=[NAME], failures=ALSO_NOT_THERE)
    def get(self, request: Request, name: str) -> Response:
        refuse_broken_path(request)
        return answer(there(schedules.schedule(name, self.scope()), name))

    @endpoint("put_schedule", answer=ScheduleAnswer, body=ScheduleRequest, parameters=[NAME])
    def put(self, request: Request, name: str) -> Response:
        refuse_broken_path(request)
        asked = ScheduleRequest.read(request)
        self.must_reach(asked.group)
        made, _ = schedules.put(name, asked.plan, **self.asked(reason=asked.reason))
        return answer(made)

    @endpoint("delete_schedule", answer=ScheduleAnswer, parameters=[NAME], failures=ALSO_NOT_THERE)
    def delete(self, request: Request, name: str) -> Response:
        refuse_broken_path(request)
        return answer(there(schedules.delete(name, **self.asked()), name))


class Pause(ScheduleView):
    """Nothing comes due until it goes on. A paused schedule stays paused as it is."""

    needs = Action.OPERATE

    @endpoint("pause_schedule", answer=ScheduleAnswer, body=ReasonRequest, parameters=[NAME], failures=ALSO_NOT_THERE)
    def post(self, request: Request, name: str) -> Response:
        return answer(there(schedules.pause(name, **self.asked_why(request)), name))


class Resume(ScheduleView):
    """It is due again from now on; what would have come due meanwhile was not missed."""

    needs = Action.OPERATE

    @endpoint("resume_schedule", answer=ScheduleAnswer, body=ReasonRequest, parameters=[NAME], failures=ALSO_NOT_THERE)
    def post(self, request: Request, name: str) -> Response:
        return answer(there(schedules.resume(name, **self.asked_why(request)), name))


class RunNow(ScheduleView):
    """Add at once what it would add, also while it is paused. Its due times stay. Answers with the new task."""

    needs = Action.OPERATE

    @endpoint("run_schedule", answer=TaskAnswer, body=ReasonRequest, parameters=[NAME], failures=ALSO_NOT_THERE)
    def post(self, request: Request, name: str) -> Response:
        return Response(TaskAnswer.of(there(schedules.run_now(name, **self.asked_why(request)), name)))


def there(found: Found | None, name: str) -> Found:
    if found is None:
        raise NotFound(f"There is no schedule {name}.")
    return found


def answer(found: Schedule) -> Response:
    return Response(ScheduleAnswer.of(found))
