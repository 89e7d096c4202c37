"""Batches: create, list, release, complete and delete."""

from __future__ import annotations

from asgiref.sync import sync_to_async

from taskstore import endpoints
from taskstore.types.batches import Batch, BatchesRequest, BatchPage, BatchRequest, NewBatch
from taskstore.types.bulk import Operation
from taskstore.types.requests import ById, ReasonById

from ..bulk.starting import delete_batch as delete_batch_and_tasks
from ..control import batches as control
from ..core.operations import Commit
from ..core.validation import refuse_wrong
from ..managers import limits
from ..models import Task
from ..offload.threads import beside_the_loop
from ..wire.requests import batch_of
from .answers import ENCODER, Body, outcome_of
from .base import Who, serves
from .bodies import LargeUpdate
from .operations import answer_of


@serves(endpoints.BATCHES)
def batches(asked: BatchesRequest, who: Who) -> BatchPage:
    return control.batches_in(asked, who.scope)


@serves(endpoints.CREATE_BATCH)
async def create_batch(asked: BatchRequest | LargeUpdate, who: Who) -> Body:
    commit = await beside_the_loop(_prepared, asked, who)
    assert isinstance(commit.batch, NewBatch)  # noqa: S101 - it was just made.
    tasks = await Task.objects.aperform(commit, is_checked=True)
    batch = await sync_to_async(Task.objects.batch_marked)(commit.batch.mark)
    return await outcome_of(tasks, before=b'"batch":' + ENCODER.encode(batch) + b",")


def _prepared(asked: BatchRequest | LargeUpdate, who: Who) -> Commit:
    """Return the commit, with all that takes long for large plans and should not hold up the event loop."""
    key = who.key_of(asked)
    if isinstance(asked, LargeUpdate):
        commit = asked.operation(who.scope, key)
    else:
        commit = batch_of(asked, who.scope, key)
        refuse_wrong(commit, limits())
    assert commit.batch  # noqa: S101 - it was just made.
    _ = commit.batch.plan.size, commit.batch.plan.reached
    return commit


@serves(endpoints.BATCH)
def batch(asked: ById, who: Who) -> Batch | None:
    return control.batch_of(asked.id, who.scope)


@serves(endpoints.RELEASE_BATCH)
def release_batch(asked: ReasonById, who: Who) -> Batch | None:
    return control.release(asked.id, who.actor.because(asked.reason))


@serves(endpoints.COMPLETE_BATCH)
def complete_batch(asked: ReasonById, who: Who) -> Batch | None:
    return control.complete(asked.id, who.actor.because(asked.reason))


@serves(endpoints.DELETE_BATCH)
def delete_batch(asked: ReasonById, who: Who) -> Operation | None:
    operation = delete_batch_and_tasks(asked.id, who.actor.because(asked.reason))
    return answer_of(operation) if operation else None
