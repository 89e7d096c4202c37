"""`group` and `chain`: jobs that end together, and jobs that follow one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import structs

from ..client.jobs import refuse_no_call, task_of
from ..types.batches import NO_PLAN, Batch, Plan, without_empty
from ..types.bulk import Operation
from ..types.job_record import JobCall
from ..types.tasks import NewTask
from .registry import refuse_no_client
from .results import Shape, link_to, linked, takes_result

if TYPE_CHECKING:
    from ..client.client import Client


class EnqueuedBatch(Batch, frozen=True, kw_only=True):
    """A batch as it was when `client` made it."""

    client: Any

    def wait(self, timeout_s: float | None = None) -> Batch:
        """Wait until all of it has ended. See `Batches.wait`."""
        batch: Batch = self.client.batches.wait(self.id, timeout_s)
        return batch

    def cancel(self, reason: str = "") -> Operation:
        """Cancel its tasks, and so whatever is planned, with a token that has the scope `operate`."""
        preview = self.client.bulk_preview("cancel", q=self.search)
        operation: Operation = self.client.bulk_start(
            preview, take_claimed=True, reason=reason, typed=preview.to_type or ""
        )
        return operation

    def delete(self, reason: str = "") -> Operation:
        """Delete it with its tasks and whatever is planned, with a token that has the scope `operate`."""
        operation: Operation = self.client.batches.delete(self.id, reason=reason)
        return operation


Link: TypeAlias = Mapping[str, Any] | None
After: TypeAlias = tuple[str, str] | None
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

    def enqueue(self, client: Client, name: str = "") -> EnqueuedBatch:
        """Enqueue the jobs as a batch, within which all that follows is enqueued. Returns it. Raises InvalidInput."""
        refuse_no_client(client)
        plan = self.plan
        parts: Any = {"batches": plan.batches, "steps": plan.steps, "on_failure": plan.on_failure}
        made = client.batches.create(name, plan.adds, **parts).batch
        return EnqueuedBatch(**structs.asdict(made), client=client)

    @property
    def plan(self) -> Plan:
        """Return the jobs as tasks of a plan that ends when all of them have. Raises InvalidInput."""
        return without_empty(self._plan(None, None)) or NO_PLAN

    def _plan(self, before: Link, after: After) -> Plan:
        """`before`: the results that its first jobs may take; `after`: what the results of its last ones are for."""
        failing = self.failing.plan if self.failing else None
        parts = [(place, part) for place, part in enumerate(self.parts) if not _is_empty(part)]
        if not self.in_turn:
            plans = [_plan_of(*each, before, after and (after[0], f"{after[1]}{k}.")) for k, each in enumerate(parts)]
            adds = tuple(add for plan in plans if not plan.is_batch for add in plan.adds)
            return Plan(adds, on_failure=failing, batches=tuple(plan for plan in plans if plan.is_batch))
        links = [
            link_to(_shape_of(part)) if _takes_result(following) else None
            for (_, part), (_, following) in pairwise(parts)
        ]
        places = [*((link["of"], "") if link else None for link in links), after]
        steps = (_plan_of(*each, link, its) for each, link, its in zip(parts, [before, *links], places, strict=False))
        return Plan(steps=tuple(steps), on_failure=failing)


def _plan_of(place: int, part: Part, before: Link, after: After) -> Plan:
    if isinstance(part, JobGroup):
        return part._plan(before, after)
    return Plan((linked(task_of(place, part), before, after),))


def _is_empty(part: Part) -> bool:
    return isinstance(part, JobGroup) and all(map(_is_empty, part.parts))


def _takes_result(part: Part) -> bool:
    if not isinstance(part, JobGroup):
        return takes_result(part)
    parts = [each for each in part.parts if not _is_empty(each)]
    return any(map(_takes_result, parts[:1] if part.in_turn else parts))


def _shape_of(part: Part) -> Shape:
    if not isinstance(part, JobGroup):
        return None
    parts = [each for each in part.parts if not _is_empty(each)]
    if part.in_turn:
        return _shape_of(parts[-1])
    shapes = [*map(_shape_of, parts)]
    return shapes if any(shape is not None for shape in shapes) else len(shapes)


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
