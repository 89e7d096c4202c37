"""Functions that are run as jobs: `client.jobs` (docs/jobs.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from .. import endpoints
from ..errors import InvalidInput
from ..types.job_record import DEFAULT_QUEUE, JobOptions, JobStatus
from ..types.jobs import Job, JobsPage
from .calls import Call, decoder, given, new_key
from .errors import NotFound
from .verbs import AsyncSender, Sender

P = ParamSpec("P")
T = TypeVar("T")

PAGE = 50
FIRST_LOOK_S, LONGEST_PAUSE_S = 0.02, 1.0


@dataclass(frozen=True, slots=True)
class JobCalls:
    """`id`: in whose name they are."""

    id: int

    def enqueue(
        self,
        function: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        queue: str = DEFAULT_QUEUE,
        at_ms: int = 0,
        priority: int = 0,
        options: JobOptions | None = None,
    ) -> Call[Job]:
        """Add a job: the function's dotted path and its parameters, which are JSON.

        `at_ms`: 0: now; negative: that long from now; positive: that very time. Raises InvalidInput.
        """
        if isinstance(args, str | bytes) or not isinstance(args, Sequence):
            raise InvalidInput({"args": [f"must be a list of arguments, not {args!r:.50}"]})
        body = {
            "clientid": self.id,
            "function": function,
            "args": list(args),
            "kwargs": dict(kwargs or {}),
            "queue": queue,
            "timespec": at_ms,
            "priority": priority,
            "options": asdict(options or JobOptions()),
        }
        return Call.of(endpoints.ENQUEUE, body=body, key=new_key())

    def get(self, id: int) -> Call[Job | None]:
        """The job; None when there is none, or no longer."""
        return Call.of(endpoints.JOB, path={"id": id}, may_be_missing=True)

    def list(
        self,
        *,
        queue: str | None = None,
        status: JobStatus | str | None = None,
        function: str | None = None,
        limit: int = PAGE,
        before: Job | str | None = None,
    ) -> Call[list[Job]]:
        """At most `limit` (200) jobs by when they are or were due, or finished: the latest first.

        `before`: the last one of a list, to go on from there.
        """
        after = before.place if isinstance(before, Job) else before
        query = {"limit": limit, **given(queue=queue, status=status, function=function, after=after)}
        return Call.of(endpoints.JOBS, query=query, read=lambda content: list(decoder(JobsPage)(content).jobs))

    def delete(self, id: int) -> Call[Job | None]:
        """Delete a finished job. Returns what it was; None when there is none. Raises JobUnfinished."""
        return Call.of(endpoints.DELETE_JOB, path={"id": id}, may_be_missing=True)

    def requeue(
        self, id: int, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, *, reason: str = ""
    ) -> Call[Job]:
        """Let a finished job run once more, with these parameters in place of the old ones (None: they stay).

        Raises JobUnfinished, and NotFound when there is none.
        """
        body = {"reason": reason, **given(args=None if args is None else [*args], kwargs=kwargs)}
        return Call.of(endpoints.REQUEUE_JOB, path={"id": id}, body=body, once=True)


def _verb(describe: Callable[Concatenate[JobCalls, P], Call[T]]) -> Callable[Concatenate[Jobs, P], T]:
    @wraps(describe)
    def send(jobs: Jobs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return jobs.client.send(describe(JobCalls(jobs.client.id), *args, **kwargs))

    return send


def _async_verb(
    describe: Callable[Concatenate[JobCalls, P], Call[T]],
) -> Callable[Concatenate[AsyncJobs, P], Awaitable[T]]:
    @wraps(describe)
    async def send(jobs: AsyncJobs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await jobs.client.send(describe(JobCalls(jobs.client.id), *args, **kwargs))

    return send


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of a client's store."""

    client: Sender

    enqueue = _verb(JobCalls.enqueue)
    get = _verb(JobCalls.get)
    list = _verb(JobCalls.list)
    delete = _verb(JobCalls.delete)
    requeue = _verb(JobCalls.requeue)

    def wait(self, id: int, timeout_s: float | None = None) -> Job:
        """The job, once it is finished. Raises TimeoutError, and NotFound when there is none (any more)."""
        for pause_s in _pauses(timeout_s):
            job = _there(self.get(id), id)
            if job.is_finished:
                return job
            time.sleep(pause_s)
        raise _not_finished(id)


@dataclass(frozen=True, slots=True)
class AsyncJobs:
    """The same for a client that is awaited."""

    client: AsyncSender

    enqueue = _async_verb(JobCalls.enqueue)
    get = _async_verb(JobCalls.get)
    list = _async_verb(JobCalls.list)
    delete = _async_verb(JobCalls.delete)
    requeue = _async_verb(JobCalls.requeue)

    async def wait(self, id: int, timeout_s: float | None = None) -> Job:
        """As that of Jobs."""
        for pause_s in _pauses(timeout_s):
            job = _there(await self.get(id), id)
            if job.is_finished:
                return job
            await asyncio.sleep(pause_s)
        raise _not_finished(id)


def _pauses(timeout_s: float | None) -> Iterator[float]:
    """How long to pause after each look: ever longer, and not beyond the end, after which comes a last look."""
    began, pause_s = time.monotonic(), FIRST_LOOK_S
    while timeout_s is None or (left_s := began + timeout_s - time.monotonic()) > 0:
        yield pause_s if timeout_s is None else min(pause_s, left_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    yield 0


def _there(job: Job | None, id: int) -> Job:
    if job is None:
        raise NotFound(f"No job {id}; it may have been deleted.")
    return job


def _not_finished(id: int) -> TimeoutError:
    return TimeoutError(f"job {id} has not finished yet")
