"""Schedules over REST."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec
from msgspec import UNSET
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore import endpoints
from taskstore.types.requests import ReasonRequest
from taskstore.types.schedules import ScheduleRequest
from taskstore.types.tasks import answer_of

from .. import schedules
from ..core.actors import Actor
from ..offload.helper_process import helper
from ..wire import strict_json
from ..wire.parameters import written
from ..wire.strict_json import decoded, is_light, value_of
from . import bodies
from .base import View, serves
from .search import query_of, refuse_broken_path


def read(request: Request) -> ScheduleRequest:
    """Raises InvalidInput that names every wrong field."""
    body = bodies.body_of(request)
    if is_light(body):
        return with_arguments(body, value_of(strict_json.read(body), ScheduleRequest))
    [asked] = helper.run(decoded_with_arguments, body)
    return asked


def decoded_with_arguments(body: bytes) -> Iterator[ScheduleRequest]:
    """What a large body holds, to be done where nobody waits."""
    [asked] = decoded(body, ScheduleRequest)
    yield with_arguments(body, asked)


def with_arguments(body: bytes, asked: ScheduleRequest) -> ScheduleRequest:
    """In a body null counts as absent, but not among the arguments of a function."""
    if asked.job is UNSET:
        return asked
    job = written(body)["job"]
    arguments = {"args": tuple(job.get("args") or ()), "kwargs": job.get("kwargs") or {}}
    return msgspec.structs.replace(asked, job=msgspec.structs.replace(asked.job, **arguments))


Found = TypeVar("Found")


class Schedules(View):
    @serves(endpoints.SCHEDULES)
    def get(self, request: Request) -> Response:
        query_of(request, endpoints.SCHEDULES)
        return Response(schedules.schedules(self.scope()))


class ScheduleView(View):
    def who_asks(self, request: Request) -> Actor:
        """Return who asks, with the reason that the body gives."""
        refuse_broken_path(request)
        return self.actor.because(bodies.read(request, ReasonRequest).reason)


class OneSchedule(ScheduleView):
    @serves(endpoints.SCHEDULE)
    def get(self, request: Request, name: str) -> Response:
        refuse_broken_path(request)
        return Response(there(schedules.schedule(name, self.scope()), name))

    @serves(endpoints.PUT_SCHEDULE)
    def put(self, request: Request, name: str) -> Response:
        refuse_broken_path(request)
        asked = read(request)
        self.must_reach(asked.group)
        made, _ = schedules.put(name, asked.plan, self.actor.because(asked.reason))
        return Response(made)

    @serves(endpoints.DELETE_SCHEDULE)
    def delete(self, request: Request, name: str) -> Response:
        refuse_broken_path(request)
        return Response(there(schedules.delete(name, self.actor), name))


class Pause(ScheduleView):
    @serves(endpoints.PAUSE_SCHEDULE)
    def post(self, request: Request, name: str) -> Response:
        return Response(there(schedules.pause(name, self.who_asks(request)), name))


class Resume(ScheduleView):
    @serves(endpoints.RESUME_SCHEDULE)
    def post(self, request: Request, name: str) -> Response:
        return Response(there(schedules.resume(name, self.who_asks(request)), name))


class RunNow(ScheduleView):
    @serves(endpoints.RUN_SCHEDULE)
    def post(self, request: Request, name: str) -> Response:
        return Response(answer_of(there(schedules.run_now(name, self.who_asks(request)), name)))


def there(found: Found | None, name: str) -> Found:
    if found is None:
        raise NotFound(f"Schedule {name} does not exist.")
    return found
