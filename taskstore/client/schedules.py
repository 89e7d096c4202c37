"""`client.schedules`: tasks and jobs that are added at set times (docs/schedules.md)."""

from __future__ import annotations

from types import NoneType
from typing import cast

from msgspec import structs

from .. import endpoints
from ..errors import refuse
from ..types.job_record import JobOptions
from ..types.schedules import CatchUp, DueJob, DueTask, PlannedJob, PlannedTask, Schedule, ScheduleRequest
from .calls import AnyPart, AsyncPart, Call, Part, calls, verb, verb_or_none


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
