"""`client.jobs`: functions that workers run (docs/jobs.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, cast

from msgspec import structs

from .. import endpoints
from ..errors import InvalidInput, refuse
from ..types.job_record import (
    DEFAULT_QUEUE,
    NO_LABELS,
    JobCall,
    JobOptions,
    JobRecord,
    JobStatus,
    new_task,
    problems_of,
    wrong_labels,
)
from ..types.jobs import Job, JobRequest, OptionsRequest
from ..types.schedules import CatchUp, DueJob, DueTask, PlannedJob, PlannedTask, Schedule, ScheduleRequest
from ..types.sentences import no_json
from ..types.tasks import NewTask
from .calls import AnyPart, AsyncPart, Call, Part, calls, verb, verb_or_none
from .errors import JobFailed, NotFound
from .verbs import CommitOnTheWire, committing

Ids = list[int]
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0


class JobVerbs(AnyPart):
    list = verb(endpoints.JOBS)
    get = verb_or_none(endpoints.JOB)
    delete = verb_or_none(endpoints.DELETE_JOB)
    requeue = verb(endpoints.REQUEUE_JOB)

    @calls
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
        unique: str | None = None,
        unique_for_ms: int = 0,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> Call[Job]:
        """Enqueue a call of a function and return the job.

        `function`: its dotted path. `args` and `kwargs` must be JSON. `at_ms`: when it is due. 0: now; negative: that
        many milliseconds from now; positive: milliseconds since the Epoch. Raises InvalidInput.

        `unique`: a key of 1 to 255 characters. While an unfinished job of the queue has this key, nothing is enqueued,
        and that job is returned with `duplicate` True. `unique_for_ms`: how long the key stays reserved even if the
        job finishes, up to 30 days. `labels`: by which jobs are found, limited and cancelled.
        """
        if isinstance(args, str | bytes) or not isinstance(args, Sequence):
            raise InvalidInput({"args": [f"must be a list of arguments, not {args!r:.50}"]})
        refuse([*no_json("args", args), *no_json("kwargs", kwargs or {}), *wrong_labels(labels)])
        asked = JobRequest(
            clientid=self.id,
            function=function,
            args=tuple(args),
            kwargs=dict(kwargs or {}),
            queue=queue,
            timespec=at_ms,
            priority=priority,
            options=OptionsRequest(**options.given) if options else OptionsRequest(),
            unique=unique,
            unique_for=unique_for_ms,
            labels=dict(labels),
        )
        return Call.of(endpoints.ENQUEUE, asked)

    @calls
    def enqueue_many(self, calls: Iterable[JobCall]) -> Call[Ids]:
        """Enqueue jobs in one commit, all or none: `enqueue_many([add.call(1, 2), add.call(3, 4)])`. Returns their ids.

        Raises InvalidInput, which names the first invalid job by its place.
        """
        adds = [task_of(place, call) for place, call in enumerate(calls)]
        sent = CommitOnTheWire(self.id, adds)
        return committing(sent, lambda tasks: [task.origin or task.id for task in tasks])


def refuse_no_call(place: int, call: object) -> None:
    """Raise TypeError if it is not a job with its arguments."""
    if not isinstance(call, JobCall):
        raise TypeError(f"jobs[{place}] must be a job with its arguments, such as resize.s(1), not {call!r:.100}")


def task_of(place: int, call: JobCall | NewTask) -> NewTask:
    """Return the task of a job. Raises InvalidInput; TypeError if it is no job."""
    if isinstance(call, NewTask):
        return call
    refuse_no_call(place, call)
    record = JobRecord(function=call.function, args=call.args, kwargs=call.kwargs, options=call.options)
    refuse((f"jobs[{place}].{name}", why) for name, why in problems_of(call.queue, record, call.labels))
    return new_task(
        record,
        queue=call.queue,
        at_ms=call.at_ms,
        priority=call.priority,
        unique=call.unique,
        unique_for_ms=call.unique_for_ms,
        labels=call.labels,
    )


class Jobs(Part, JobVerbs):
    """The jobs of the store."""

    def wait(self, id: int, timeout_s: float | None = None, *, raises: bool = True) -> Job:
        """Wait until the job is finished and return it. `timeout_s`: None waits without limit.

        Raises JobFailed if it failed or was cancelled, unless `raises` is False; TimeoutError; NotFound if the job does
        not exist or is deleted.
        """
        for pause_s in pauses(timeout_s):
            job = _existing(self.get(id), id)
            if job.is_finished:
                return _told(job, raises)
            time.sleep(pause_s)
        raise TimeoutError(f"job {id} has not finished yet")


class AsyncJobs(AsyncPart, JobVerbs):
    """The jobs of the store, for `AsyncClient`."""

    async def wait(self, id: int, timeout_s: float | None = None, *, raises: bool = True) -> Job:
        """Wait until the job is finished and return it, like `Jobs.wait`."""
        for pause_s in pauses(timeout_s):
            job = _existing(await self.get(id), id)
            if job.is_finished:
                return _told(job, raises)
            await asyncio.sleep(pause_s)
        raise TimeoutError(f"job {id} has not finished yet")


def _told(job: Job, raises: bool) -> Job:
    if raises and job.status is not JobStatus.SUCCEEDED:
        raise JobFailed(job)
    return job


def pauses(timeout_s: float | None) -> Iterator[float]:
    """Yield the pause after each poll. Pauses double up to a second; the last poll is at the time limit."""
    began, pause_s = time.monotonic(), FIRST_PAUSE_S
    while timeout_s is None or (left_s := began + timeout_s - time.monotonic()) > 0:
        yield pause_s if timeout_s is None else min(pause_s, left_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    yield 0


def _existing(job: Job | None, id: int) -> Job:
    if job is None:
        raise NotFound(f"No job {id}; it may have been deleted.")
    return job


# ---- `client.schedules`: tasks and jobs that are added at set times (docs/schedules.md)


class ScheduleVerbs(AnyPart):
    """Changing a schedule needs a token with the scope `operate`."""

    list = verb(endpoints.SCHEDULES)
    get = verb_or_none(endpoints.SCHEDULE)
    delete = verb_or_none(endpoints.DELETE_SCHEDULE)
    pause = verb(endpoints.PAUSE_SCHEDULE)
    resume = verb(endpoints.RESUME_SCHEDULE)
    run = verb(endpoints.RUN_SCHEDULE)

    @calls
    def put(
        self,
        name: str,
        cron: str,
        *,
        zone: str = "UTC",
        catch_up: str = "skip",
        task: DueTask | None = None,
        job: DueJob | None = None,
        reason: str = "",
    ) -> Call[Schedule]:
        """Create a schedule or replace the one with this name, which stays paused if it was.

        `cron`: an expression such as `0 7 * * 1-5`, in the time zone `zone`. Give either the `task` or the `job` to
        add. `catch_up`: how to treat due times that passed while no server ran: `skip` them, add the `latest`, or add
        `all`. Raises InvalidInput, which names every invalid field.
        """
        refuse(
            (field, f"must be a {right.__name__}, not a {type(value).__name__}")
            for field, value, right in (
                ("task", task, DueTask),
                ("job", job, DueJob),
                ("job.options", getattr(job, "options", None), JobOptions),
            )
            if not isinstance(value, (right, NoneType))
        )
        asked = ScheduleRequest(
            name=name,
            cron=cron,
            zone=zone,
            catch_up=cast("CatchUp", catch_up),
            task=None if task is None else PlannedTask(**structs.asdict(task)),
            job=None if job is None else PlannedJob.of(job),
            reason=reason,
        )
        return Call.of(endpoints.PUT_SCHEDULE, asked)


class Schedules(Part, ScheduleVerbs):
    """The schedules of the store."""


class AsyncSchedules(AsyncPart, ScheduleVerbs):
    """The schedules of the store, for `AsyncClient`."""
