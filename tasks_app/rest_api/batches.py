"""Batches: create, list, release and delete."""

from __future__ import annotations

from typing import TypeVar

from asgiref.sync import sync_to_async
from rest_framework.exceptions import NotFound

from taskstore import endpoints
from taskstore.types.batches import Batch, BatchById, BatchesRequest, BatchPage, BatchRequest, NewBatch, ReasonByBatch
from taskstore.types.bulk import Operation

from ..bulk.starting import delete_batch as delete_batch_and_tasks
from ..control import batches as control
from ..models import Task
from ..offload.threads import beside_the_loop
from ..wire.requests import batch_of
from .answers import ENCODER, Body, outcome_of
from .base import Who, serves
from .operations import answer_of

T = TypeVar("T")


@serves(endpoints.BATCHES)
def batches(asked: BatchesRequest, who: Who) -> BatchPage:
    return control.batches_in(asked, who.scope)


@serves(endpoints.CREATE_BATCH)
async def create_batch(asked: BatchRequest, who: Who) -> Body:
    commit = await beside_the_loop(batch_of, asked, who.scope, who.key_of(asked))
    assert isinstance(commit.batch, NewBatch)  # noqa: S101 - it was just made.
    who.must_reach(*{add.group for add in commit.adds}, *{add.group for _, add in commit.batch.planned})
    tasks = await Task.objects.aperform(commit)
    batch = await sync_to_async(Task.objects.batch_marked)(commit.batch.mark)
    return await outcome_of(tasks, before=b'"batch":' + ENCODER.encode(batch) + b",")


@serves(endpoints.BATCH)
def batch(asked: BatchById, who: Who) -> Batch:
    return _found(control.batch_of(asked.id, who.scope), asked.id)


@serves(endpoints.RELEASE_BATCH)
def release_batch(asked: ReasonByBatch, who: Who) -> Batch:
    return _found(control.release(asked.id, who.actor.because(asked.reason)), asked.id)


@serves(endpoints.DELETE_BATCH)
def delete_batch(asked: ReasonByBatch, who: Who) -> Operation:
    operation = delete_batch_and_tasks(asked.id, who.actor.because(asked.reason))
    return answer_of(_found(operation, asked.id))


def _found(found: T | None, batch_id: int) -> T:
    if found is None:
        raise NotFound(f"Batch {batch_id} does not exist.")
    return found
