"""The calls of the service MassTasker: Update, Query, BulkSet and Debug."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from grpc import StatusCode
from grpc.aio import ServicerContext

from taskstore.errors import InvalidInput, refuse
from taskstore.masstasker import masstasker_pb2 as pb
from taskstore.masstasker import masstasker_pb2_grpc
from taskstore.masstasker.masstasker_pb2 import (
    BulkSetRequest,
    BulkSetResponse,
    DebugRequest,
    DebugResponse,
    QueryRequest,
    QueryResponse,
    UpdateRequest,
    UpdateResponse,
)
from taskstore.types.tasks import NOBODY, Ending

from ..access import audit
from ..access.policy import Action, actor_of, scope_of
from ..access.tokens import waiting_tokens
from ..core.actors import Actor
from ..core.operations import GroupScope, Query, TaskRecord, Update
from ..core.validation import group_name, refuse_wrong
from ..managers import TaskQuerySet, limits
from ..models import Task, Token
from ..offload.threads import beside_the_loop as beside
from ..reading.counts import counts_of
from ..writer.totals import size_of
from . import bulk_set, requests
from .authentication import caller, must_reach, no_token
from .refs import Refs, in_time, refuse_repeated
from .requests import duration_in, id_in, new_tasks_in, time_in
from .statuses import CallRefused, message_of
from .threads import beside_the_loop

MOST = 2**31  # Databases take no larger limit than 2^63 - 1, and no answer holds as many.


async def debug(request: pb.DebugRequest, token: Token) -> pb.DebugResponse:
    """Raises InvalidInput or CallRefused."""
    if request.group:
        refuse(group_name("group", request.group))
    must_reach(token, Action.SEE_PAYLOADS, [request.group] if request.group else [])
    return await beside_the_loop(_found, request.group, min(request.limit or MOST, MOST), scope_of(token))


def _found(group: str, limit: int, scope: GroupScope) -> pb.DebugResponse:
    if group:
        tasks, number = Task.objects.get_queryset().in_group(group), counts_of(group).total
    else:
        tasks = Task.objects.get_queryset().within(scope)
        _, number = size_of(scope)
    return pb.DebugResponse(tasks=_messages(tasks.longest_available_first()[:limit]), num_tasks=number)


def _messages(tasks: TaskQuerySet) -> list[pb.Task]:
    """Raises CallRefused when they are more than an answer should hold."""
    messages, size = list[pb.Task](), 0
    for task in tasks.of_one_moment():
        messages.append(message_of(task))
        size += messages[-1].ByteSize()
        if size > settings.TASKSTORE_MAX_REQUEST_BYTES:
            text = f"the answer would exceed {settings.TASKSTORE_MAX_REQUEST_BYTES} bytes: set a lower limit"
            raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text)
    return messages


YEAR_MS = 365 * 24 * 3_600_000  # As good as for ever: who waits has long gone, or asks again.


async def query(request: QueryRequest, token: Token, context: ServicerContext[Any, Any]) -> QueryResponse:
    """Raises InvalidInput, CallRefused, or what the verbs raise."""
    asked = Query(
        groups=(request.group,),
        duration_ms=duration_in(request.own_for, "own_for"),
        at_ms=time_in(request.now, "now") if request.HasField("now") else 0,
        wait_ms=_left_ms(context) if request.wait else 0,
        scope=scope_of(token),
    )
    must_reach(token, Action.SEE_PAYLOADS if asked.only_reads else Action.WORK, asked.groups)
    # A client that has gone cancels this, and with it the operation: it takes nothing.
    tasks = await _decided(asked, token)
    if not tasks:
        raise _nothing(asked, context)
    return QueryResponse(task=message_of(tasks[0]))


async def _decided(asked: Query, token: Token) -> list[TaskRecord]:
    if not asked.wait_ms:
        return await Task.objects.aperform(asked)
    async with waiting_tokens.while_valid(token, no_token()):
        return await Task.objects.aperform(asked)


def _left_ms(context: ServicerContext[Any, Any]) -> int:
    """How long until the client's deadline, if it has one."""
    left_s = context.time_remaining()
    return YEAR_MS if left_s is None or left_s > YEAR_MS / 1_000 else ceil(left_s * 1_000)


def _nothing(asked: Query, context: ServicerContext[Any, Any]) -> CallRefused:
    if not asked.wait_ms:
        return CallRefused(StatusCode.NOT_FOUND, f'no task is available in the group "{asked.groups[0]}"')
    if _left_ms(context) > 0:
        return CallRefused(StatusCode.UNAVAILABLE, "the server is stopping: try again", retry_after_s=1)
    return CallRefused(StatusCode.DEADLINE_EXCEEDED, "no task became available before the deadline")


MOST_MATCHED = 100_000  # What one transaction deletes without being named; BulkSet goes in chunks.
IDS_IN_AUDIT = 500
# Beyond this a request is read beside the event loop.
READ_AT_ONCE, BYTES_AT_ONCE = 250, 2**20


async def update(request: UpdateRequest, token: Token) -> UpdateResponse:
    """Raises InvalidInput, CallRefused, or what the verbs raise."""
    size = len(request.created) + len(request.deleted) + len(request.predicates)
    is_large = size > READ_AT_ONCE or request.ByteSize() > BYTES_AT_ONCE
    refs, asked = await beside(_read, request, token) if is_large else _read(request, token)
    must_reach(token, Action.WORK, {add.group for add in asked.adds})
    if refs.groups or refs.selectors:
        must_reach(token, Action.OPERATE, refs.groups)
        ids = await beside_the_loop(_operate, request, asked, refs, actor_of(token))
    else:
        ids = [task.id for task in await Task.objects.aperform(asked, is_checked=True)]
    return UpdateResponse(created_ids=ids)


def _read(request: UpdateRequest, token: Token) -> tuple[Refs, Update]:
    refs = Refs.read("deleted", request.deleted)
    refuse_repeated("deleted", request.deleted)
    asked = Update(
        adds=new_tasks_in(request.created),
        deletes=refs.ids,
        depends=tuple(map(id_in, request.predicates)),
        scope=scope_of(token),
    )
    refuse_wrong(asked, limits())
    return refs, asked


def _operate(request: UpdateRequest, asked: Update, refs: Refs, actor: Actor) -> list[int]:
    """Do what is asked also to the tasks that the refs describe. Returns the ids of the new ones."""
    _refuse_doubtful(request)
    with transaction.atomic():
        matched = _locked(refs, asked)
        tasks = Task.objects.perform(_with(asked, matched, actor))
        if matched:
            _record(refs, matched, actor)
    return [task.id for task in tasks]


def _refuse_doubtful(request: UpdateRequest) -> None:
    """Raise InvalidInput when the only ref may as well be plain ids, as older clients send them: of tasks in work."""
    ids = requests.plain_ids(request)
    held = Task.objects.get_queryset().claimed(Task.objects.now_ms()).filter(id__in=ids, owner=NOBODY)
    if ids and held.count() == len(ids):
        text = f"must have a second ref: this one can also be read as the ids {ids}, which are leased"
        raise InvalidInput({"deleted": [text]})


def _locked(refs: Refs, asked: Update) -> frozenset[int]:
    """The ids of all tasks that the refs describe, so that nobody else changes one of them before the commit.

    Raises CallRefused when they are too many, or can't be found in time.
    """
    described = refs.described(asked.scope).values_list("id", flat=True)
    while True:
        seen = _seen(described)
        # In id order, as all commits lock: two that share tasks would deadlock otherwise.
        locked = frozenset(described.order_by("id").select_for_update())
        if seen <= locked:
            return locked
        # Somebody claimed one in between: it is there under another id.


def _seen(described: QuerySet[Task, int]) -> frozenset[int]:
    with in_time(described.db):
        seen = frozenset(described[: MOST_MATCHED + 1])
    if len(seen) > MOST_MATCHED:
        text = f"more than {MOST_MATCHED} tasks match: delete them in parts"
        raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text)
    return seen


def _with(asked: Update, matched: frozenset[int], actor: Actor) -> Update:
    """With the tasks that were described; without any it is nobody's operation."""
    if not matched:
        return asked
    # Each once, however many refs reach it. Those that were named keep their place.
    described = sorted(matched.difference(asked.deletes))
    return replace(
        asked,
        deletes=(*asked.deletes, *described),
        matched=matched,
        operator=actor.operator(Ending.PURGED),
    )


def _record(refs: Refs, matched: frozenset[int], actor: Actor) -> None:
    audit.record(
        actor,
        "purge",
        group=refs.only_group,
        selection=refs.in_words,
        done=len(matched),
        details={"ids": sorted(matched)[:IDS_IN_AUDIT]},
    )


Context = ServicerContext[Any, Any]


class Servicer(masstasker_pb2_grpc.MassTaskerServicer):
    """Behind Authentication, which says who calls and turns what is raised here into a status."""

    async def Update(self, request: UpdateRequest, context: Context) -> UpdateResponse:
        """One all-or-nothing change under the condition that all predicates exist."""
        return await update(request, caller())

    async def Query(self, request: QueryRequest, context: Context) -> QueryResponse:
        """Read a task of a group, or own it for a time."""
        return await query(request, caller(), context)

    async def BulkSet(self, request: BulkSetRequest, context: Context) -> BulkSetResponse:
        """Change the same in every task that the refs match."""
        return await bulk_set.bulk_set(request, caller())

    async def Debug(self, request: DebugRequest, context: Context) -> DebugResponse:
        """The tasks of a group, without taking one."""
        return await debug(request, caller())
