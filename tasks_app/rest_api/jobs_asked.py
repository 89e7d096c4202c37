"""The bodies of requests about jobs, as types (contract.md section 7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

from msgspec import UNSET, Meta, UnsetType, field
from msgspec.json import Decoder
from msgspec.structs import asdict, replace
from rest_framework.request import Request

from ..job_queues import problems_of, why_no_json
from ..job_record import DEFAULT_QUEUE, JobOptions, JobRecord, OnLost, new_task
from ..operations import Commit, GroupScope, Operation, ResendKey
from ..records import MOST
from ..validation import Problem
from ..wire import strict_json
from ..wire.reading import value_of
from ..wire.scalars import Int64, Priority, Reason, Timespec
from ..wire.tasks import Asked
from . import bodies
from .asked import AskedOperation

JobAsked = TypeVar("JobAsked", bound=Asked)

Args = Annotated[tuple[Any, ...], Meta(description="Any JSON.")]
Kwargs = Annotated[dict[str, Any], Meta(description="Parameters by name.")]
Times = Annotated[int, Meta(ge=1, le=1_000_000)]
Milliseconds = Annotated[int, Meta(ge=0, le=MOST)]
Limit = Annotated[int, Meta(ge=1, le=MOST)]


def read(request: Request, asked: type[JobAsked]) -> JobAsked:
    """As `bodies.read`, but with parameters as they were written: null and integers of any size are theirs to have."""
    body = bodies.body_of(request)
    value = value_of(strict_json.read(body), asked)
    written = json.loads(body)
    parameters = {"args": tuple, "kwargs": dict}
    exact = {name: kind(written[name]) for name, kind in parameters.items() if written.get(name) is not None}
    return replace(value, **exact)


class OptionsRequest(Asked, frozen=True, kw_only=True):
    """How a job is run."""

    max_attempts: Annotated[Times, Meta(description="How often at most the function is tried.")] = 1
    backoff_ms: Annotated[
        Milliseconds, Meta(description="Before the second try; twice as long before each further one, at most an hour.")
    ] = 1_000
    timeout_ms: Annotated[Limit, Meta(description="For one attempt; absent: as long as it takes.")] | UnsetType = UNSET
    memory_bytes: Annotated[Limit, Meta(description="For its process; absent: what there is.")] | UnsetType = UNSET
    on_lost: Annotated[OnLost, Meta(description="What becomes of it when its worker dies.")] = OnLost.RETRY
    max_lost: Annotated[Milliseconds, Meta(description="How often its worker may die until it is reported failed.")] = 3

    def options(self) -> JobOptions:
        return JobOptions(**{name: value for name, value in asdict(self).items() if value is not UNSET})


class JobRequest(AskedOperation, frozen=True, kw_only=True):
    """A function to run, once a worker has time or later."""

    function: Annotated[str, Meta(description="The dotted path under which workers know it.")]
    args: Args = ()
    kwargs: Kwargs = field(default_factory=dict)
    queue: Annotated[str, Meta(description="A name without /.")] = DEFAULT_QUEUE
    timespec: Timespec = 0
    priority: Priority = 0
    options: OptionsRequest = field(default_factory=OptionsRequest)
    clientid: Int64 = 0

    def problems(self) -> Iterator[Problem]:
        yield from problems_of(self.queue, self.record())

    def every_problem(self) -> Iterator[Problem]:
        # What is no JSON would make no task to look at.
        yield from list(self.problems()) or super().every_problem()

    def record(self) -> JobRecord:
        return JobRecord(function=self.function, args=self.args, kwargs=self.kwargs, options=self.options.options())

    def operation(self, scope: GroupScope, key: ResendKey | None) -> Operation:
        task = new_task(self.record(), queue=self.queue, at_ms=self.timespec, priority=self.priority)
        return Commit(key=key, owner=self.clientid, adds=(task,), scope=scope)


class RequeueRequest(Asked, frozen=True, kw_only=True):
    """A finished job to run once more."""

    args: Annotated[Args, Meta(description="In place of the old ones; absent: they stay.")] | UnsetType = UNSET
    kwargs: Annotated[Kwargs, Meta(description="In place of the old ones; absent: they stay.")] | UnsetType = UNSET
    reason: Reason = ""

    def problems(self) -> Iterator[Problem]:
        for name in ("args", "kwargs"):
            value = getattr(self, name)
            if value is not UNSET and (why := why_no_json(value)):
                yield name, why


# msgspec works a type out when it first meets it; two threads that make it do so at the same moment crash the process.
for _asked in (JobRequest, RequeueRequest):
    Decoder(_asked)
