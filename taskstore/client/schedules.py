"""Tasks and jobs that are added when they are due: `client.schedules` (docs/schedules.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

from ..errors import InvalidInput
from ..types.job_record import DEFAULT_QUEUE, JobOptions
from ..types.records import value_of
from ..types.tasks import Task
from .answers import Answer, or_none, wire
from .calls import Call, as_json, decoder, given
from .verbs import AsyncSender, Sender

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTask(Answer):
    """The task that a schedule adds."""

    group: str
    data: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DueJob(Answer):
    """The job that a schedule enqueues: the function's dotted path and its parameters, which are JSON."""

    function: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    options: JobOptions = field(default=JobOptions(), metadata=wire(read=partial(value_of, JobOptions)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun(Answer):
    """What a schedule did last."""

    due_ms: int = field(metadata=wire("due"))
    at_ms: int = field(metadata=wire("at"))
    origin: int  # Of the task that it added: the id of the job, if it was one.


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePause(Answer):
    """Who paused it, when and why."""

    by: str
    at_ms: int = field(metadata=wire("at"))
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Answer):
    """A schedule, as it was when the server answered. Of a broken one there may be name and error only."""

    name: str
    state: str  # on, paused or broken
    error: str  # Why it is broken.
    id: int  # Of the task that it is now.
    origin: int
    cron: str = ""
    in_words: str = ""
    zone: str = ""
    catch_up: str = ""
    task: DueTask | None = field(default=None, metadata=wire(read=or_none(DueTask.of)))
    job: DueJob | None = field(default=None, metadata=wire(read=or_none(DueJob.of)))
    next_ms: int | None = field(metadata=wire("next"))  # None: it is not due before somebody sees to it.
    last: LastRun | None = field(default=None, metadata=wire(read=or_none(LastRun.of)))
    paused: SchedulePause | None = field(default=None, metadata=wire(read=or_none(SchedulePause.of)))


@dataclass(frozen=True, slots=True)
class ScheduleCalls:
    """To change a schedule needs a token that may `operate`."""

    def list(self) -> Call[list[Schedule]]:
        """The schedules that add to groups that the token may touch, sorted by name."""
        return Call(method="GET", path="/schedules", read=as_json(_schedules))

    def get(self, name: str) -> Call[Schedule | None]:
        """The schedule of this name; None when there is none."""
        return Call(method="GET", path=_path(name), read=as_json(Schedule.of), may_be_missing=True)

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
        return Call(method="PUT", path=_path(name), body={**times, **added}, read=as_json(Schedule.of))

    def delete(self, name: str) -> Call[Schedule | None]:
        """Delete it; what it has added stays. Returns what it was; None when there is none."""
        return Call(method="DELETE", path=_path(name), read=as_json(Schedule.of), may_be_missing=True)

    def pause(self, name: str, reason: str = "") -> Call[Schedule]:
        """Nothing comes due until it goes on. Raises NotFound."""
        return Call(method="POST", path=_path(name, "/pause"), body={"reason": reason}, read=as_json(Schedule.of))

    def resume(self, name: str, reason: str = "") -> Call[Schedule]:
        """It is due again from now on; what would have come due meanwhile was not missed. Raises NotFound."""
        return Call(method="POST", path=_path(name, "/resume"), body={"reason": reason}, read=as_json(Schedule.of))

    def run(self, name: str, reason: str = "") -> Call[Task]:
        """Add at once what it would add. Raises NotFound, and CommitUnknown when the connection breaks."""
        body = {"reason": reason}
        return Call(method="POST", path=_path(name, "/run"), body=body, read=decoder(Task), once=True)


CALLS = ScheduleCalls()


def _path(name: str, below: str = "") -> str:
    if not name or "/" in name:
        raise InvalidInput({"name": [f"a name without / and not empty, not {name!r}"]})
    return f"/schedules/{quote(name, safe='')}{below}"


def _on_the_wire(added: DueTask | DueJob) -> dict[str, Any]:
    said = {each.name: getattr(added, each.name) for each in fields(added)}
    return {**said, "options": asdict(added.options)} if isinstance(added, DueJob) else said


def _schedules(trees: Sequence[Any]) -> list[Schedule]:
    return [Schedule.of(tree) for tree in trees]


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
