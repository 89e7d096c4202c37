"""Batches: listed and released. The rules are in core/batches.py."""

from __future__ import annotations

from taskstore.errors import refuse
from taskstore.types.batches import Batch as BatchAnswer
from taskstore.types.batches import BatchesRequest, BatchPage

from ..access import audit
from ..core.actors import PROGRAM, Actor
from ..core.operations import EVERY_GROUP, GroupScope, Step
from ..database import atomic
from ..models import Batch, Task


def batch_of(batch_id: int, scope: GroupScope = EVERY_GROUP) -> BatchAnswer | None:
    """Return a batch; None if there is none that the scope allows to see."""
    found = Batch.objects.within(scope).counted().filter(pk=batch_id).first()
    return found.told() if found else None


def batches_in(asked: BatchesRequest, scope: GroupScope = EVERY_GROUP) -> BatchPage:
    """Return batches, newest first."""
    batches = Batch.objects.within(scope).counted().order_by("-pk")
    if asked.open is not None:
        batches = batches.still_open() if asked.open else batches.exclude(closed_at_ms=0)
    if asked.after is not None:
        batches = batches.filter(pk__lt=asked.after)
    found = [batch.told() for batch in batches[: asked.limit + 1]]
    page = found[: asked.limit]
    return BatchPage(batches=tuple(page), after=str(page[-1].id) if len(found) > len(page) else None)


def release(batch_id: int, actor: Actor = PROGRAM) -> BatchAnswer | None:
    """Let a held batch close once it has nothing else to wait for. Returns it; None if there is none."""
    refuse(actor.problems())
    batch = batch_of(batch_id, actor.scope)
    if batch is None or not batch.hold:
        return batch
    with atomic():
        Task.objects.change_batch(batch_id, Step.RELEASE, actor.scope)
        audit.record(actor, "release batch", selection=_name(batch), done=1)
    return batch_of(batch_id, actor.scope)


def _name(batch: BatchAnswer) -> str:
    return f"batch {batch.id} {batch.name}".rstrip()
