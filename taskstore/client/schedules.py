"""Tasks and jobs that are added when they are due: `client.schedules` (docs/schedules.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import structs

from .. import endpoints
from ..errors import InvalidInput
from ..types.schedules import DueJob, DueTask, Schedule
from ..types.tasks import Task
from .calls import Call, given
from .verbs import AsyncSender, Sender

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScheduleCalls:
    """To change a schedule needs a token that may `operate`."""

    def list(self) -> Call[list[Schedule]]:
        """The schedules that add to groups that the token may touch, sorted by name."""
        return Call.of(endpoints.SCHEDULES)

    def get(self, name: str) -> Call[Schedule | None]:
        """The schedule of this name; None when there is none."""
        return Call.of(endpoints.SCHEDULE, path=_path(name), may_be_missing=True)

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
        """Make the schedule, or change the one of this name: it stays paused if it was.

        Either `task` or `job` is what it adds. `catch_up`: what becomes of due times that passed while no server
        ran: skip, latest (one for all of them) or all. Raises InvalidInput that names every wrong field.
        """
        times = {"cron": cron, "zone": zone, "catch_up": catch_up, "reason": reason}
        added = given(task=task and _on_the_wire(task), job=job and _on_the_wire(job))
        return Call.of(endpoints.PUT_SCHEDULE, path=_path(name), body={**times, **added})

    def delete(self, name: str) -> Call[Schedule | None]:
        """Delete it; what it has added stays. Returns what it was; None when there is none."""
        return Call.of(endpoints.DELETE_SCHEDULE, path=_path(name), may_be_missing=True)

    def pause(self, name: str, reason: str = "") -> Call[Schedule]:
        """Nothing comes due until it goes on. Raises NotFound."""
        return Call.of(endpoints.PAUSE_SCHEDULE, path=_path(name), body={"reason": reason})

    def resume(self, name: str, reason: str = "") -> Call[Schedule]:
        """It is due again from now on; what would have come due meanwhile was not missed. Raises NotFound."""
        return Call.of(endpoints.RESUME_SCHEDULE, path=_path(name), body={"reason": reason})

    def run(self, name: str, reason: str = "") -> Call[Task]:
        """Add at once what it would add. Raises NotFound, and CommitUnknown when the connection breaks."""
        body = {"reason": reason}
        return Call.of(endpoints.RUN_SCHEDULE, path=_path(name), body=body, once=True)


CALLS = ScheduleCalls()


def _path(name: str) -> dict[str, str]:
    if not name or "/" in name:
        raise InvalidInput({"name": ["must not be empty or contain /"]})
    return {"name": name}


def _on_the_wire(added: DueTask | DueJob) -> dict[str, Any]:
    said = structs.asdict(added)
    return {**said, "options": asdict(added.options)} if isinstance(added, DueJob) else said


def _verb(describe: Callable[Concatenate[ScheduleCalls, P], Call[T]]) -> Callable[Concatenate[Schedules, P], T]:
    @wraps(describe)
    def send(schedules: Schedules, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return schedules.client.send(describe(CALLS, *args, **kwargs))

    return send


def _async_verb(
    describe: Callable[Concatenate[ScheduleCalls, P], Call[T]],
) -> Callable[Concatenate[AsyncSchedules, P], Awaitable[T]]:
    @wraps(describe)
    async def send(schedules: AsyncSchedules, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await schedules.client.send(describe(CALLS, *args, **kwargs))

    return send


@dataclass(frozen=True, slots=True)
class Schedules:
    """The schedules of a client's store."""

    client: Sender

    list = _verb(ScheduleCalls.list)
    get = _verb(ScheduleCalls.get)
    put = _verb(ScheduleCalls.put)
    delete = _verb(ScheduleCalls.delete)
    pause = _verb(ScheduleCalls.pause)
    resume = _verb(ScheduleCalls.resume)
    run = _verb(ScheduleCalls.run)


@dataclass(frozen=True, slots=True)
class AsyncSchedules:
    """The same for a client that is awaited."""

    client: AsyncSender

    list = _async_verb(ScheduleCalls.list)
    get = _async_verb(ScheduleCalls.get)
    put = _async_verb(ScheduleCalls.put)
    delete = _async_verb(ScheduleCalls.delete)
    pause = _async_verb(ScheduleCalls.pause)
    resume = _async_verb(ScheduleCalls.resume)
    run = _async_verb(ScheduleCalls.run)
