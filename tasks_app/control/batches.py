"""Batches: listed, released and completed. The rules are in core/batches.py."""

from __future__ import annotations

import json
from enum import StrEnum

from django.db.models import Q, Sum

from taskstore.errors import Forbidden, refuse
from taskstore.types.batches import ON_FAILURE, THEN, BatchesRequest, BatchPage, step_of
from taskstore.types.batches import Batch as BatchAnswer
from taskstore.types.scalars import Action

from ..access import audit
from ..core.actors import PROGRAM, Actor
from ..core.operations import EVERY_GROUP, GroupScope, Step, why_out_of_reach
from ..database import atomic
from ..models import Batch, BatchCount, BatchPlan, Task

WHEN = {THEN: "then", ON_FAILURE: "on failure"}


def batch_of(batch_id: int, scope: GroupScope = EVERY_GROUP) -> BatchAnswer | None:
    """Return a batch; None if there is none that the scope allows to see."""
    found = Batch.objects.within(scope).counted().filter(pk=batch_id).first()
    return found.told() if found else None


class Tab(StrEnum):
    """A part of the batches, by what they are. Those that are held, or have failed members, may be open too."""

    OPEN = "open"
    HELD = "held"
    FAILED = "failed"
    CLOSED = "closed"


def batches_in(
    asked: BatchesRequest, scope: GroupScope = EVERY_GROUP, *, tab: Tab | None = None, name: str = ""
) -> BatchPage:
    """Return batches, newest first. `name`: only those whose name contains it, ignoring case."""
    batches = Batch.objects.within(scope).shown().counted().order_by("-pk")
    match tab:
        case Tab.OPEN:
            batches = batches.still_open()
        case Tab.HELD:
            batches = batches.still_open().filter(Q(hold=1) | ~Q(problem="") | ~Q(lost=""))
        case Tab.FAILED:
            batches = batches.failing()
        case Tab.CLOSED:
            batches = batches.exclude(closed_at_ms=0)
    if name:
        batches = batches.filter(name__icontains=name)
    if asked.open is not None:
        batches = batches.still_open() if asked.open else batches.exclude(closed_at_ms=0)
    if asked.after is not None:
        batches = batches.filter(pk__lt=asked.after)
    found = [batch.told() for batch in batches[: asked.limit + 1]]
    page = found[: asked.limit]
    return BatchPage(batches=tuple(page), after=str(page[-1].id) if len(found) > len(page) else None)


def release(batch_id: int, actor: Actor = PROGRAM) -> BatchAnswer | None:
    """Let a batch close once it has nothing else to wait for, also one that could not add what it plans.

    Where those who planned it have lost their rights, it goes on with those of the actor, who has to be an operator.
    Returns it; None if there is none. Raises Forbidden.
    """
    refuse(actor.problems())
    batch = batch_of(batch_id, actor.scope)
    if batch is None or not (batch.hold or batch.problem):
        return batch
    with atomic():
        takes_over = _held_rows(batch_id, actor) if batch.problem else []
        held = (
            Batch.objects.within(actor.scope)
            .tree(batch_id)
            .still_open()
            .exclude(problem="")
            .values_list("pk", flat=True)
        )
        Task.objects.change_batch(batch_id, Step.RELEASE, actor.scope, also=held, takes_over=takes_over)
        action = "take over batch" if takes_over else "release batch"
        audit.record(actor, action, selection=_name(batch), done=1, details={"problem": batch.problem})
    return batch_of(batch_id, actor.scope)


def complete(batch_id: int, actor: Actor = PROGRAM) -> BatchAnswer | None:
    """Count the members of an open batch that have failed as succeeded: of those within it where some have failed.

    A closed one stays as it is. Returns it; None if there is none.
    """
    refuse(actor.problems())
    batch = batch_of(batch_id, actor.scope)
    if batch is None or batch.closed_at_ms is not None or batch.deleted:
        return batch
    with atomic():
        waiting = Batch.objects.within(actor.scope).tree(batch_id).still_open()
        counts = BatchCount.objects.filter(batch__in=waiting.values("pk")).values("batch")
        lost = counts.annotate(lost=Sum("failed") + Sum("gone")).filter(lost__gt=0).values("batch")
        failing = waiting.filter(Q(pk__in=lost) | Q(failed_children__gt=0)).order_by("pk").values_list("pk", flat=True)
        first, *others = [*failing] or [batch_id]
        Task.objects.change_batch(first, Step.COMPLETE, actor.scope, also=others)
        audit.record(actor, "complete batch", selection=_name(batch), done=1, details={"failed": batch.failed})
    return batch_of(batch_id, actor.scope)


def _held_rows(batch_id: int, actor: Actor) -> list[int]:
    """Return the rows of the plans of a batch whose holders may not add them, so that the actor takes them over.

    Raises Forbidden if the actor is no operator, or may not add them either.
    """
    within = Batch.objects.within(actor.scope).tree(batch_id).still_open()
    holders = [Batch.objects.get(pk=batch_id), *within.exclude(problem="")]
    held = list({plan.pk: (plan, why) for batch in holders for plan, why in batch.lacking()}.values())
    if held and not actor.may(Action.OPERATE):
        raise Forbidden(f"{held[0][1]}. Only an operator can take the batch over.")
    for plan, _ in held:
        if why := why_out_of_reach(actor.scope, json.loads(plan.reach)):
            raise Forbidden(f"You can't take the batch over: {why}")
    return [plan.pk for plan, _ in held]


def plans_of(batch: Batch) -> list[tuple[str, str]]:
    """Return what the batch may still add, in words, in this order: when, and what."""
    here = f"{batch.root}/{batch.path}"
    levels = [*map(step_of, range(batch.steps, 0, -1)), THEN, ON_FAILURE]
    words: dict[str, list[str]] = {letter: [] for letter in levels}
    of_levels = BatchPlan.objects.filter(level__in=[f"{here}{letter}" for letter in levels]).order_by("pk")
    for level, text in of_levels.values_list("level", "words"):
        words[level.removeprefix(here)].append(text)
    below = f"{here}{THEN}{THEN}", f"{here}{ON_FAILURE}{THEN}"
    more = set(BatchPlan.objects.filter(level__in=below).values_list("level", flat=True))
    return [
        (
            WHEN.get(letter) or ("next" if letter == levels[0] else "after that"),
            ", ".join(texts) + (", and more" if f"{here}{letter}{THEN}" in more else ""),
        )
        for letter, texts in words.items()
        if texts
    ]


def _name(batch: BatchAnswer) -> str:
    return f"batch {batch.id} {batch.name}".rstrip()
