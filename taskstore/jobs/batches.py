"""`group` and `chain`: jobs that end together, and jobs that follow one another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..client.jobs import refuse_no_call, task_of
from ..errors import InvalidInput
from ..types import sentences
from ..types.batches import MOST_DEPTH, Plan
from ..types.job_record import JobCall
from .registry import refuse_no_client

if TYPE_CHECKING:
    from ..client.client import Client
    from ..types.batches import Batch


@dataclass(frozen=True, kw_only=True)
class JobGroup:
    """Jobs that run at the same time, and what follows when all of them have succeeded."""

    calls: tuple[JobCall, ...]
    next: JobGroup | None = None
    failing: JobGroup | None = None

    def then(self, *steps: JobCall | JobGroup) -> JobGroup:
        """Return the same with steps that follow, one after the other: jobs, or groups of jobs. Raises InvalidInput."""
        if len(steps) >= MOST_DEPTH:
            raise InvalidInput({"then": [sentences.at_most(MOST_DEPTH, "steps one after the other", len(steps) + 1)]})
        if not steps:
            return self
        first = as_group(steps[0])
        if not first.calls:  # Nothing runs there, and so nothing can fail.
            return self.then(*([first.next] if first.next else []), *steps[1:])
        following = first.then(*steps[1:])
        return replace(self, next=self.next.then(following) if self.next else following)

    def on_failure(self, *calls: JobCall) -> JobGroup:
        """Return the same with jobs that run once, when the first job of the group has failed for good."""
        return replace(self, failing=group(*calls))

    def enqueue(self, client: Client, name: str = "") -> Batch:
        """Enqueue the jobs as a batch, which enqueues what follows. Raises InvalidInput."""
        refuse_no_client(client)
        plan = self.plan
        return client.batches.create(name, plan.adds, then=plan.then, on_failure=plan.on_failure).batch

    @property
    def plan(self) -> Plan:
        """Return the jobs as tasks of a plan. Raises InvalidInput."""
        return Plan(
            tuple(task_of(place, call) for place, call in enumerate(self.calls)),
            then=self.next.plan if self.next else None,
            on_failure=self.failing.plan if self.failing else None,
        )


def as_group(step: JobCall | JobGroup) -> JobGroup:
    return step if isinstance(step, JobGroup) else group(step)


def group(*calls: JobCall) -> JobGroup:
    """Return jobs that run at the same time: `group(resize.s(1), resize.s(2)).then(publish.s())`."""
    for place, call in enumerate(calls):
        refuse_no_call(place, call)
    return JobGroup(calls=calls)


def chain(*steps: JobCall | JobGroup) -> JobGroup:
    """Return jobs, or groups of jobs, that run one after the other: `chain(fetch.s(1), publish.s())`."""
    if not steps:
        raise TypeError("chain needs at least one job, such as chain(fetch.s(1), publish.s())")
    return as_group(steps[0]).then(*steps[1:])
