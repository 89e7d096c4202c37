"""Jobs over REST."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from asgiref.sync import sync_to_async
from msgspec import UNSET
from msgspec.structs import replace
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore import endpoints
from taskstore.errors import InvalidInput
from taskstore.types.job_record import JobStatus, NotAJob, queue_group, why_no_queue
from taskstore.types.jobs import Job, JobRequest, JobsPage, RequeueRequest
from taskstore.types.requests import Asked

from ..core.operations import Duplicate, Operation, TaskRecord
from ..jobs import queues as job_queues
from ..jobs.queues import Wanted
from ..models import Task
from ..offload.helper_process import helper
from ..offload.threads import beside_the_loop, by_the_helper
from ..reading import history
from ..reading.pages import Cursor
from ..wire import strict_json
from ..wire.parameters import written
from ..wire.requests import enqueue_of
from ..wire.strict_json import decoded, is_light, value_of
from . import bodies
from .base import LoopView, View, serves
from .errors import ENCODER
from .search import choice_in, integer, page_size_in, query_of

JobAsked = TypeVar("JobAsked", bound=Asked)


def read(request: Request, asked: type[JobAsked]) -> JobAsked:
    """As `bodies.read`, but with parameters as they were written: null and large integers are theirs to have."""
    body = bodies.body_of(request)
    if is_light(body):
        return with_parameters(body, value_of(strict_json.read(body), asked))
    value: JobAsked
    [value] = helper.run(decoded_with_parameters, body, asked)
    return value


def decoded_with_parameters(body: bytes, asked: type[JobAsked]) -> Iterator[JobAsked]:
    """The same of a large body, to be done where nobody waits."""
    [value] = decoded(body, asked)
    yield with_parameters(body, value)


def with_parameters(body: bytes, value: JobAsked) -> JobAsked:
    as_written = written(body)
    parameters = {"args": tuple, "kwargs": dict}
    exact = {name: kind(as_written[name]) for name, kind in parameters.items() if as_written.get(name) is not None}
    return replace(value, **exact)


class Jobs(LoopView):
    @serves(endpoints.JOBS)
    async def get(self, request: Request) -> bytes:
        asked = query_of(request, endpoints.JOBS)
        return ENCODER.encode(await sync_to_async(self._page)(asked))

    def _page(self, asked: Mapping[str, str]) -> JobsPage:
        scope, limit = self.scope(), page_size_in(asked, endpoints.JOBS)
        page = job_queues.list_jobs(wanted_in(asked), after=Cursor.read(asked.get("after")), limit=limit, scope=scope)
        return JobsPage(jobs=tuple(page.jobs), after=str(page.after) if page.after else None)

    @serves(endpoints.ENQUEUE)
    async def post(self, request: Request) -> bytes:
        body = bodies.body_of(request)
        if is_light(body):
            asked = with_parameters(body, value_of(strict_json.read(body), JobRequest))
            [record] = await Task.objects.aperform(self._operation(asked))
            if isinstance(record, Duplicate):
                return await sync_to_async(self._holder)(record)
            return _answer(asked, record)
        [asked] = await by_the_helper(decoded_with_parameters, body, JobRequest)
        [record] = await Task.objects.aperform(await beside_the_loop(self._operation, asked))
        if isinstance(record, Duplicate):
            return await sync_to_async(self._holder)(record)
        return await beside_the_loop(_answer, asked, record)

    def _holder(self, record: Duplicate) -> bytes:
        return ENCODER.encode(job_queues.holder_of_key(record.origin, self.scope()))

    def _operation(self, asked: JobRequest) -> Operation:
        self.must_reach(queue_group(asked.queue))
        return enqueue_of(asked, self.scope(), self.key_of(asked))


class JobView(View):
    def job(self, id: str) -> Job:
        job_id, scope = integer("id", id), self.scope()
        try:
            job = job_queues.find(job_id, scope)
        except NotAJob as problem:
            raise NotFound(f"Task {job_id} is not a job: {problem}.") from None
        if job is None:
            told = history.fate_of(job_id, scope)
            raise NotFound(told or f"Job {job_id} does not exist{history.doubt_about(job_id)}.")
        return job


class OneJob(JobView):
    @serves(endpoints.JOB)
    def get(self, request: Request, id: str) -> Response:
        return Response(self.job(id))

    @serves(endpoints.DELETE_JOB)
    def delete(self, request: Request, id: str) -> Response:
        job = self.job(id)
        job_queues.delete(job, self.actor)
        return Response(job)


class Requeue(JobView):
    @serves(endpoints.REQUEUE_JOB)
    def post(self, request: Request, id: str) -> Response:
        job, asked = self.job(id), read(request, RequeueRequest)
        self.must_reach(queue_group(job.queue))
        args = None if asked.args is UNSET else asked.args
        kwargs = None if asked.kwargs is UNSET else asked.kwargs
        return Response(job_queues.requeue(job, self.actor.because(asked.reason), args=args, kwargs=kwargs))


def _answer(asked: JobRequest, record: TaskRecord) -> bytes:
    return ENCODER.encode(job_queues.job_from(Task.of(record), asked.record(), record.made_at_ms))


def wanted_in(asked: Mapping[str, str]) -> Wanted:
    """Which jobs a query asks for. Raises InvalidInput that names the field."""
    queue = asked.get("queue", "")
    if "queue" in asked and (why := why_no_queue(queue)):
        raise InvalidInput({"queue": [why]})
    status = choice_in(asked, "status", endpoints.JOBS)
    return Wanted(queue=queue, status=JobStatus(status) if status else None, function=asked.get("function", ""))
