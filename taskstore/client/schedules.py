"""`client.schedules`: tasks and jobs that are added at set times (docs/schedules.md)."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, cast

from msgspec import UNSET, structs

from .. import endpoints
from ..errors import InvalidInput, refuse
from ..types.job_record import JobOptions
from ..types.requests import ReasonRequest
from ..types.schedules import CatchUp, DueJob, DueTask, PlannedJob, PlannedTask, Schedule, ScheduleRequest
from ..types.tasks import Task
from .calls import AnyPart, AsyncPart, Call, Part, verb

if TYPE_CHECKING:
    pass


class ScheduleVerbs(AnyPart):
    """Changing a schedule needs a token with the scope `operate`."""

    @verb
    def list(self) -> Call[list[Schedule]]:
        """Return the schedules that add to groups this token may access, sorted by name."""
        return Call.of(endpoints.SCHEDULES)

    @verb
    def get(self, name: str) -> Call[Schedule | None]:
        """Return the schedule with this name, or None if it does not exist."""
        return Call.of(endpoints.SCHEDULE, path=_path(name), may_be_missing=True)

    @verb
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
        body = ScheduleRequest(
            cron=cron,
            zone=zone,
            catch_up=cast("CatchUp", catch_up),
            task=UNSET if task is None else PlannedTask(**structs.asdict(task)),
            job=UNSET if job is None else PlannedJob.of(job),
            reason=reason,
        )
        return Call.of(endpoints.PUT_SCHEDULE, path=_path(name), body=body)

    @verb
    def delete(self, name: str) -> Call[Schedule | None]:
        """Delete a schedule; the tasks it added are kept. Returns the schedule, or None if it did not exist."""
        return Call.of(endpoints.DELETE_SCHEDULE, path=_path(name), may_be_missing=True)

    @verb
    def pause(self, name: str, reason: str = "") -> Call[Schedule]:
        """Stop adding tasks until the schedule is resumed. Raises NotFound."""
        return Call.of(endpoints.PAUSE_SCHEDULE, path=_path(name), body=ReasonRequest(reason=reason))

    @verb
    def resume(self, name: str, reason: str = "") -> Call[Schedule]:
        """Continue from now on, without catching up on the time it was paused. Raises NotFound."""
        return Call.of(endpoints.RESUME_SCHEDULE, path=_path(name), body=ReasonRequest(reason=reason))

    @verb
    def run(self, name: str, reason: str = "") -> Call[Task]:
        """Add the schedule's task or job now and return the task.

        Raises NotFound; CommitUnknown if the connection breaks.
        """
        return Call.of(endpoints.RUN_SCHEDULE, path=_path(name), body=ReasonRequest(reason=reason), once=True)


def _path(name: str) -> dict[str, str]:
    if not name or "/" in name:
        raise InvalidInput({"name": ["must not be empty or contain /"]})
    return {"name": name}


class Schedules(Part, ScheduleVerbs):
    """The schedules of the store."""


class AsyncSchedules(AsyncPart, ScheduleVerbs):
    """The schedules of the store, for `AsyncClient`."""
