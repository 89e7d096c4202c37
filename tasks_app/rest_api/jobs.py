"""Jobs over REST."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from rest_framework.exceptions import NotFound

from taskstore import endpoints
from taskstore.types.job_record import NotAJob, queue_group
from taskstore.types.jobs import Job, JobRequest, JobsPage, JobsRequest, RequeueRequest
from taskstore.types.requests import ById, Nothing
from taskstore.types.schedules import ReasonBySchedule, Schedule, ScheduleByName, ScheduleRequest
from taskstore.types.tasks import Task, answer_of

from .. import schedules as verbs
from ..core.operations import Duplicate, TaskRecord
from ..jobs import queues
from ..models import Task as StoredTask
from ..offload.threads import beside_the_loop
from ..reading import history
from ..reading.pages import Cursor
from ..wire.requests import enqueue_of
from .answers import ENCODER
from .base import Who, serves


@serves(endpoints.JOBS)
def jobs(asked: JobsRequest, who: Who) -> JobsPage:
    wanted = queues.Wanted(
        queue=asked.queue or "", status=asked.status, function=asked.function, batch=asked.batch or 0
    )
    page = queues.list_jobs(wanted, after=Cursor.read(asked.after), limit=asked.limit, scope=who.scope)
    return JobsPage(jobs=tuple(page.jobs), after=str(page.after) if page.after else None)


@serves(endpoints.ENQUEUE)
async def enqueue(asked: JobRequest, who: Who) -> bytes:
    who.must_reach(queue_group(asked.queue))
    # Beside the loop, as the arguments may be large.
    operation = await beside_the_loop(enqueue_of, asked, who.scope, who.key_of(asked))
    [record] = await StoredTask.objects.aperform(operation)
    if isinstance(record, Duplicate):
        return ENCODER.encode(await sync_to_async(queues.holder_of_key)(record.origin, who.scope))
    return await beside_the_loop(_answer, asked, record)


def _answer(asked: JobRequest, record: TaskRecord) -> bytes:
    return ENCODER.encode(queues.job_from(StoredTask.of(record), asked.record(), record.made_at_ms))


@serves(endpoints.JOB)
def job(asked: ById, who: Who) -> Job:
    return _job(asked.id, who)


@serves(endpoints.DELETE_JOB)
def delete_job(asked: ById, who: Who) -> Job:
    found = _job(asked.id, who)
    queues.delete(found, who.actor)
    return found


@serves(endpoints.REQUEUE_JOB)
def requeue_job(asked: RequeueRequest, who: Who) -> Job:
    found = _job(asked.id, who)
    who.must_reach(queue_group(found.queue))
    return queues.requeue(found, who.actor.because(asked.reason), args=asked.args, kwargs=asked.kwargs)


def _job(job_id: int, who: Who) -> Job:
    try:
        found = queues.find(job_id, who.scope)
    except NotAJob as problem:
        raise NotFound(f"Task {job_id} is not a job: {problem}.") from None
    if found is None:
        told = history.fate_of(job_id, who.scope)
        raise NotFound(told or f"Job {job_id} does not exist{history.doubt_about(job_id)}.")
    return found


# ---- Schedules over REST


@serves(endpoints.SCHEDULES)
def schedules(asked: Nothing, who: Who) -> list[Schedule]:
    return verbs.schedules(who.scope)


@serves(endpoints.SCHEDULE)
def schedule(asked: ScheduleByName, who: Who) -> Schedule | None:
    return verbs.schedule(asked.name, who.scope)


@serves(endpoints.PUT_SCHEDULE)
def put_schedule(asked: ScheduleRequest, who: Who) -> Schedule:
    who.must_reach(asked.group)
    made, _ = verbs.put(asked.name, asked.plan, who.actor.because(asked.reason))
    return made


@serves(endpoints.DELETE_SCHEDULE)
def delete_schedule(asked: ScheduleByName, who: Who) -> Schedule | None:
    return verbs.delete(asked.name, who.actor)


@serves(endpoints.PAUSE_SCHEDULE)
def pause_schedule(asked: ReasonBySchedule, who: Who) -> Schedule | None:
    return verbs.pause(asked.name, who.actor.because(asked.reason))


@serves(endpoints.RESUME_SCHEDULE)
def resume_schedule(asked: ReasonBySchedule, who: Who) -> Schedule | None:
    return verbs.resume(asked.name, who.actor.because(asked.reason))


@serves(endpoints.RUN_SCHEDULE)
def run_schedule(asked: ReasonBySchedule, who: Who) -> Task | None:
    task = verbs.run_now(asked.name, who.actor.because(asked.reason))
    return answer_of(task) if task else None
