"""Functions that are run: enqueue, find, list, delete, requeue (contract.md section 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asgiref.sync import sync_to_async
from drf_spectacular.utils import OpenApiResponse
from msgspec import UNSET
from rest_framework.exceptions import NotFound
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from .. import history, job_queues
from ..errors import InvalidInput
from ..job_queues import Job, Wanted
from ..job_record import JobStatus, NotAJob, queue_group, why_no_queue
from ..listing import PAGE, Place
from ..models import Task
from ..policy import Action, may
from . import jobs_asked
from .answers import Failure
from .base import View
from .description import FAILURES, ID, KEY_REUSED, NOT_THERE, endpoint, path, query
from .jobs_answers import JobAnswer, JobsAnswer
from .jobs_asked import JobRequest, RequeueRequest
from .on_the_loop import LoopView
from .operations import choice
from .queries import integer, page_size_in, query_of
from .rendering import ENCODER

MOST = 200

IN_PATH = [path("id", ID, "The first id of its task.")]
LISTED = [
    query("queue", {"type": "string"}, "Of this queue; absent: of every one."),
    query("status", {"type": "string", "enum": list(JobStatus)}),
    query("function", {"type": "string"}, "The dotted path, whole."),
    query("after", {"type": "string"}, "Where the page before ended: its `after`, or the `place` of a job."),
    query("limit", {"type": "integer", "minimum": 1, "maximum": MOST, "default": PAGE}, "How many at most."),
]
UNFINISHED = {409: OpenApiResponse(Failure, "It is not finished: `detail` says how far it is.")}


class JobsView(View):
    """Who may look at jobs sees what they hold; who may work may change them."""

    needs = Action.SEE_PAYLOADS

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method not in SAFE_METHODS and self.needs is Action.SEE_PAYLOADS:
            self.needs = Action.WORK
        super().initial(request, *args, **kwargs)


class Jobs(JobsView, LoopView):
    """Jobs, by when they are or were due, or finished: the latest first. Or a new one."""

    @endpoint("jobs", answer=JobsAnswer, parameters=LISTED)
    async def get(self, request: Request) -> bytes:
        asked = query_of(request, "queue", "status", "function", "after", "limit")
        return ENCODER.encode(JobsAnswer.of(await sync_to_async(self._page)(asked)))

    def _page(self, asked: Mapping[str, str]) -> job_queues.Page:
        after = Place.read(asked["after"], "after") if "after" in asked else None
        scope, limit = self.scope(), page_size_in(asked, MOST)
        return job_queues.list_jobs(wanted_in(asked), after=after, limit=limit, scope=scope)

    @endpoint("enqueue", answer=JobAnswer, body=JobRequest, failures=FAILURES | KEY_REUSED)
    async def post(self, request: Request) -> bytes:
        asked = jobs_asked.read(request, JobRequest)
        self.must_reach(queue_group(asked.queue))
        [record] = await Task.objects.adecide(asked.operation(self.scope(), self.key_of(asked)))
        return ENCODER.encode(JobAnswer.of(job_queues.job_from(Task.of(record), asked.record(), record.made_at_ms)))


class JobView(JobsView):
    def job(self, id: str) -> Job:
        job_id, scope = integer("id", id), self.scope()
        try:
            job = job_queues.find(job_id, scope)
        except NotAJob as problem:
            raise NotFound(f"Task {job_id} is no job: {problem}.") from None
        if job is None:
            told = history.fate_of(job_id, scope)
            raise NotFound(told or f"There is no job {job_id}{history.doubt_about(job_id)}.")
        return job


class OneJob(JobView):
    """A job, found by the first id of its task for as long as it is kept; the end of one that is finished."""

    @endpoint("job", answer=JobAnswer, parameters=IN_PATH, failures=FAILURES | NOT_THERE)
    def get(self, request: Request, id: str) -> Response:
        return Response(JobAnswer.of(self.job(id)))

    @endpoint("delete_job", answer=JobAnswer, parameters=IN_PATH, failures=FAILURES | NOT_THERE | UNFINISHED)
    def delete(self, request: Request, id: str) -> Response:
        job = self.job(id)
        # What a worker does to its tasks is in the trail; the audit has what operators do.
        job_queues.delete(job, by=self.by() if may(self.token(), Action.OPERATE) else "")
        return Response(JobAnswer.of(job))


class Requeue(JobView):
    """Let a finished job run once more, perhaps with other parameters. It stays the same job."""

    needs = Action.OPERATE

    @endpoint(
        "requeue_job",
        answer=JobAnswer,
        body=RequeueRequest,
        parameters=IN_PATH,
        failures=FAILURES | NOT_THERE | UNFINISHED,
    )
    def post(self, request: Request, id: str) -> Response:
        job, asked = self.job(id), jobs_asked.read(request, RequeueRequest)
        self.must_reach(queue_group(job.queue))
        again = job_queues.requeue(
            job,
            args=None if asked.args is UNSET else asked.args,
            kwargs=None if asked.kwargs is UNSET else asked.kwargs,
            by=self.by(),
            reason=asked.reason,
        )
        return Response(JobAnswer.of(again))


def wanted_in(asked: Mapping[str, str]) -> Wanted:
    """Which jobs a query asks for. Raises InvalidInput that names the field."""
    queue = asked.get("queue", "")
    if "queue" in asked and (why := why_no_queue(queue)):
        raise InvalidInput({"queue": [why]})
    status = JobStatus(choice("status", asked, list(JobStatus))) if "status" in asked else None
    return Wanted(queue=queue, status=status, function=asked.get("function", ""))
