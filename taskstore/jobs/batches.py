"""`group` and `chain`: jobs that end together, and jobs that follow one another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ..client.jobs import refuse_no_call, task_of
from ..types.batches import Plan
from ..types.job_record import JobCall
from ..types.tasks import NewTask
from .registry import refuse_no_client

if TYPE_CHECKING:
    from ..client.client import Client
    from ..types.batches import Batch


Part: TypeAlias = "JobCall | NewTask | JobGroup"  # What Django's `planned` returns is a NewTask.


@dataclass(frozen=True, kw_only=True)
class JobGroup:
    """Jobs, and groups of jobs, that run at the same time, or one after the other."""

    parts: tuple[Part, ...]
    in_turn: bool = False
    failing: JobGroup | None = None

    def __post_init__(self) -> None:
        for place, part in enumerate(self.parts):
            if not isinstance(part, JobGroup | NewTask):
                refuse_no_call(place, part)

    def then(self, *steps: Part) -> JobGroup:
        """Return the same with steps that follow, one after the other: jobs, or groups of jobs."""
        before = self.parts if self.in_turn and not self.failing else (self,)
        return JobGroup(parts=(*before, *steps), in_turn=True) if steps else self

    def on_failure(self, *calls: Part) -> JobGroup:
        """Return the same with jobs that run once, when the first job of all this has failed for good."""
        return replace(self, failing=group(*calls))

    def enqueue(self, client: Client, name: str = "") -> Batch:
        """Enqueue the jobs as a batch, within which all that follows is enqueued. Returns it. Raises InvalidInput."""
        refuse_no_client(client)
        plan = self.plan
        parts: Any = {"batches": plan.batches, "steps": plan.steps, "on_failure": plan.on_failure}
        return client.batches.create(name, plan.adds, **parts).batch

    @property
    def plan(self) -> Plan:
        """Return the jobs as tasks of a plan that ends when all of them have. Raises InvalidInput."""
        failing = self.failing.plan if self.failing else None
        if self.in_turn:
            return Plan(steps=tuple(_plan_of(*part) for part in enumerate(self.parts)), on_failure=failing)
        calls = [(place, part) for place, part in enumerate(self.parts) if not isinstance(part, JobGroup)]
        batches = tuple(part.plan for part in self.parts if isinstance(part, JobGroup))
        return Plan(tuple(task_of(*call) for call in calls), on_failure=failing, batches=batches)


def _plan_of(place: int, step: Part) -> Plan:
    return step.plan if isinstance(step, JobGroup) else Plan((task_of(place, step),))


def group(*parts: Part) -> JobGroup:
    """Return jobs that run at the same time: `group(resize.s(1), resize.s(2)).then(publish.s())`.

    Groups and chains can be among them. An empty group is passed over.
    """
    return JobGroup(parts=parts)


def chain(*steps: Part) -> JobGroup:
    """Return jobs, or groups of jobs, that run one after the other: `chain(fetch.s(1), publish.s())`."""
    if not steps:
        raise TypeError("chain needs at least one job, such as chain(fetch.s(1), publish.s())")
    return JobGroup(parts=steps, in_turn=True)
