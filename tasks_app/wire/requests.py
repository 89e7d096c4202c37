"""Requests as operations of the store, and every problem that the store has with them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from uuid import uuid4

from taskstore.errors import InvalidInput
from taskstore.types.batches import BatchRequest, NewBatch, later_in
from taskstore.types.job_record import new_task
from taskstore.types.jobs import JobRequest
from taskstore.types.requests import Add, Asked, AskedOperation, ClaimRequest, UpdateRequest
from taskstore.types.sentences import group_name
from taskstore.types.tasks import Problem

from ..core.operations import EVERY_GROUP, Claim, Commit, GroupScope, Operation, ResendKey
from ..core.validation import validate
from ..managers import limits


class ImportRequest(AskedOperation, frozen=True, kw_only=True):
    """The tasks of a file, as new tasks, whatever ids they come with. Dead letters stay dead letters."""

    adds: tuple[Add, ...]


def update_of(asked: UpdateRequest, scope: GroupScope, key: ResendKey | None) -> Commit:
    deletes = frozenset(asked.deletes)
    return Commit(
        key=key,
        owner=asked.clientid,
        adds=tuple(add.in_commit(deletes) for add in asked.adds),
        updates=tuple(update.change() for update in asked.updates),
        deletes=asked.deletes,
        depends=asked.depends,
        scope=scope,
        is_told=True,
    )


def batch_of(asked: BatchRequest, scope: GroupScope, key: ResendKey | None) -> Commit:
    return Commit(
        key=key,
        owner=asked.clientid,
        adds=tuple(add.new_task() for add in asked.adds),
        scope=scope,
        is_told=True,
        batch=NewBatch(
            name=asked.name,
            plan=later_in(asked),
            parent=asked.parent,
            hold=asked.hold,
            failed_ends=asked.failed_ends,
            mark=key.key if key else uuid4().hex,
        ),
    )


def import_of(asked: ImportRequest, scope: GroupScope, key: ResendKey | None) -> Commit:
    return Commit(owner=asked.clientid, adds=tuple(add.imported() for add in asked.adds), scope=scope, key=key)


def claim_of(asked: ClaimRequest, scope: GroupScope, key: ResendKey | None) -> Claim:
    return Claim(
        groups=asked.wanted,
        is_list=bool(asked.groups),
        wait_ms=asked.wait,
        key=key,
        owner=asked.clientid,
        duration_ms=asked.duration,
        limit=asked.limit,
        order=asked.order,
        depends=asked.depends,
        scope=scope,
        is_told=True,
    )


def enqueue_of(asked: JobRequest, scope: GroupScope, key: ResendKey | None) -> Commit:
    task = new_task(
        asked.record(),
        queue=asked.queue,
        at_ms=asked.timespec,
        priority=asked.priority,
        unique=asked.unique,
        unique_for_ms=asked.unique_for,
        labels=asked.labels,
    )
    return Commit(key=key, owner=asked.clientid, adds=(task,), scope=scope)


@singledispatch
def every_problem(asked: Asked) -> Iterator[Problem]:
    """Yield the problems of a request: those that its type knows, and those that the store would report.

    A request with checks of its own registers them here.
    """
    yield from asked.problems(limits())


@every_problem.register
def _(asked: UpdateRequest) -> Iterator[Problem]:
    yield from asked.problems(limits())
    yield from problems_of(update_of(asked, EVERY_GROUP, key=None))


@every_problem.register
def _(asked: ClaimRequest) -> Iterator[Problem]:
    yield from asked.problems(limits())
    yield from problems_of(claim_of(asked, EVERY_GROUP, key=None))


@every_problem.register
def _(asked: JobRequest) -> Iterator[Problem]:
    # Arguments that are not JSON make no task to look at.
    yield from list(asked.problems(limits())) or problems_of(enqueue_of(asked, EVERY_GROUP, key=None))


@every_problem.register
def _(asked: BatchRequest) -> Iterator[Problem]:
    # Plans that nest too deep are looked into no further.
    yield from list(asked.problems(limits())) or problems_of(batch_of(asked, EVERY_GROUP, key=None))


@every_problem.register
def _(asked: Add) -> Iterator[Problem]:
    """Yield the problems of a task that is added by itself."""
    wrong = list(asked.problems(limits()))
    yield from wrong
    yield from group_name("group", asked.group)
    if not wrong:  # The data would not be bytes.
        yield from problems_of(Commit(owner=0, adds=(asked.new_task(),)), below="adds[0].")


def problems_of(operation: Operation, below: str = "") -> Iterator[Problem]:
    """Yield the problems that the store has with an operation; `below`: what to leave out before each path."""
    try:
        validate(operation, limits())
    except InvalidInput as invalid:
        yield from ((path.removeprefix(below), " ".join(texts)) for path, texts in invalid.fields.items())
