"""The calls of the service MassTasker: Update, Query, BulkSet and Debug."""

from __future__ import annotations

from math import ceil
from typing import Any, cast

from grpc import StatusCode
from grpc.aio import ServicerContext
from msgspec.structs import replace

from taskstore.errors import InvalidInput, refuse
from taskstore.masstasker import masstasker_pb2 as pb
from taskstore.masstasker import masstasker_pb2_grpc
from taskstore.types.sentences import group_name
from taskstore.types.tasks import NOBODY, Ending

from ..access import audit
from ..access.policy import Action, actor_of, scope_of
from ..access.tokens import waiting_tokens
from ..core.actors import Actor
from ..core.operations import Apart, GroupScope, Query, TaskRecord, Update
from ..core.room import Told, size_of_task
from ..core.validation import refuse_wrong
from ..database import atomic
from ..database.transaction import most_bytes, waited_place
from ..managers import TaskQuerySet, limits
from ..models import Task, Token
from ..offload.threads import beside_the_loop, in_a_database_thread
from ..reading.counts import counts_of
from ..writer.totals import size_of
from . import bulk_set, requests
from .authentication import caller, must_reach, no_token
from .refs import Refs, in_time, refuse_repeated
from .requests import duration_in, id_in, new_tasks_in, time_in
from .statuses import CallRefused, message_of

MOST = 2**31  # More than any answer can hold, and a valid limit in both databases.


async def debug(request: pb.DebugRequest, token: Token) -> pb.DebugResponse:
    """List tasks without claiming them. Raises InvalidInput or CallRefused."""
    if request.group:
        refuse(group_name("group", request.group))
    must_reach(token, Action.SEE_PAYLOADS, [request.group] if request.group else [])
    return await in_a_database_thread(_found, request.group, min(request.limit or MOST, MOST), scope_of(token))


def _found(group: str, limit: int, scope: GroupScope) -> pb.DebugResponse:
    if group:
        tasks, number = Task.objects.get_queryset().in_group(group), counts_of(group).tasks
    else:
        tasks = Task.objects.get_queryset().within(scope)
        _, number = size_of(scope)
    return pb.DebugResponse(tasks=_messages(tasks.longest_available_first()[:limit]), num_tasks=number)


def _messages(tasks: TaskQuerySet) -> list[pb.Task]:
    """Convert tasks to messages. Raises CallRefused when they exceed the size of an answer."""
    records, size = list[TaskRecord](), 0
    for task in tasks.records():
        records.append(task)
        size += size_of_task(task)
        if size > most_bytes():
            text = f"the response would exceed {most_bytes()} bytes: set a lower limit"
            raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text)
    place = waited_place(size)
    messages = list(map(message_of, Task.objects.with_data(records)))
    place.leave()
    return messages


YEAR_MS = 365 * 24 * 3_600_000  # Unlimited in effect.


async def query(request: pb.QueryRequest, token: Token, context: ServicerContext[Any, Any]) -> pb.QueryResponse:
    """Read or claim a task. Raises InvalidInput, CallRefused, or an error of the claim."""
    asked = Query(
        groups=(request.group,),
        duration_ms=duration_in(request.own_for, "own_for"),
        at_ms=time_in(request.now, "now") if request.HasField("now") else 0,
        wait_ms=_left_ms(context) if request.wait else 0,
        scope=scope_of(token),
        is_told=True,
    )
    must_reach(token, Action.SEE_PAYLOADS if asked.only_reads else Action.WORK, asked.groups)
    # A client that disconnects cancels this and its operation, so it claims nothing.
    if asked.wait_ms:
        async with waiting_tokens.while_valid(token, no_token()):
            tasks = await Task.objects.aperform(asked)
    else:
        tasks = await Task.objects.aperform(asked)
    if tasks:
        if isinstance(tasks, Told) and (place := tasks.place):
            context.add_done_callback(cast("Any", lambda _: place.leave()))
        if isinstance(tasks[0].data, Apart):
            tasks = await in_a_database_thread(lambda: list(Task.objects.with_data(tasks)))
        return pb.QueryResponse(task=message_of(tasks[0]))
    if not asked.wait_ms:
        raise CallRefused(StatusCode.NOT_FOUND, f'no task is available in the group "{asked.groups[0]}"')
    if _left_ms(context) > 0:
        raise CallRefused(StatusCode.UNAVAILABLE, "the server is stopping: try again", retry_after_s=1)
    raise CallRefused(StatusCode.DEADLINE_EXCEEDED, "no task became available before the deadline")


def _left_ms(context: ServicerContext[Any, Any]) -> int:
    """Return the time until the client's deadline, a year without one."""
    left_s = context.time_remaining()
    return YEAR_MS if left_s is None or left_s > YEAR_MS / 1_000 else ceil(left_s * 1_000)


MOST_MATCHED = 100_000  # Tasks that one transaction deletes without their ids; BulkSet works in chunks.
IDS_IN_AUDIT = 500
# Larger requests are parsed outside the event loop.
READ_AT_ONCE, BYTES_AT_ONCE = 250, 2**20


async def update(request: pb.UpdateRequest, token: Token) -> pb.UpdateResponse:
    """Commit adds and deletes. Raises InvalidInput, CallRefused, or an error of the commit."""
    size = len(request.created) + len(request.deleted) + len(request.predicates)
    is_large = size > READ_AT_ONCE or request.ByteSize() > BYTES_AT_ONCE
    refs, asked = await beside_the_loop(_read, request, token) if is_large else _read(request, token)
    must_reach(token, Action.WORK)
    if refs.groups or refs.selectors:
        must_reach(token, Action.OPERATE, refs.groups)
        ids = await in_a_database_thread(_operate, request, asked, refs, actor_of(token))
    else:
        ids = [task.id for task in await Task.objects.aperform(asked, is_checked=True)]
    return pb.UpdateResponse(created_ids=ids)


def _read(request: pb.UpdateRequest, token: Token) -> tuple[Refs, Update]:
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


def _operate(request: pb.UpdateRequest, asked: Update, refs: Refs, actor: Actor) -> list[int]:
    """Commit, deleting the tasks that the refs describe, too. Returns the ids of the new tasks."""
    ids = requests.plain_ids(request)
    held = Task.objects.get_queryset().claimed(Task.objects.now_ms()).filter(id__in=ids, owner=NOBODY)
    # The only ref may be the plain ids of leased tasks, as older clients send them.
    if ids and held.count() == len(ids):
        text = f"must have a second ref: this one can also be read as the ids {ids}, which are leased"
        raise InvalidInput({"deleted": [text]})
    with atomic():
        matched = _locked(refs, asked)
        if matched:
            # Each task once, however many refs match it. Named ones keep their place.
            described = sorted(matched.difference(asked.deletes))
            deletes = (*asked.deletes, *described)
            asked = replace(asked, deletes=deletes, matched=matched, operator=actor.operator(Ending.PURGED))
        tasks = Task.objects.perform(asked)
        if matched:
            audit.record(
                actor,
                "purge",
                group=refs.only_group,
                selection=refs.in_words,
                done=len(matched),
                details={"ids": sorted(matched)[:IDS_IN_AUDIT]},
            )
    return [task.id for task in tasks]


def _locked(refs: Refs, asked: Update) -> frozenset[int]:
    """Lock all tasks that the refs describe until the end of the transaction, and return their ids.

    Raises CallRefused when they are too many, or can't be found in time.
    """
    described = refs.described(asked.scope).values_list("id", flat=True)
    while True:
        with in_time(described.db):
            seen = frozenset(described[: MOST_MATCHED + 1])
        if len(seen) > MOST_MATCHED:
            text = f"more than {MOST_MATCHED} tasks match: delete them in parts"
            raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text)
        # In id order, as all commits lock: two with common tasks would deadlock otherwise.
        locked = frozenset(described.order_by("id").select_for_update())
        if seen <= locked:
            return locked
        # A task was replaced in between, and has another id now.


Context = ServicerContext[Any, Any]


class Servicer(masstasker_pb2_grpc.MassTaskerServicer):
    """The calls of MassTasker. Authentication has checked the caller, and turns errors into statuses."""

    async def Update(self, request: pb.UpdateRequest, context: Context) -> pb.UpdateResponse:
        """Make one all-or-nothing change, on the condition that all predicates exist."""
        return await update(request, caller())

    async def Query(self, request: pb.QueryRequest, context: Context) -> pb.QueryResponse:
        """Read a task of a group, or claim it for a time."""
        return await query(request, caller(), context)

    async def BulkSet(self, request: pb.BulkSetRequest, context: Context) -> pb.BulkSetResponse:
        """Make the same change to every task that the refs match."""
        return await bulk_set.bulk_set(request, caller())

    async def Debug(self, request: pb.DebugRequest, context: Context) -> pb.DebugResponse:
        """List the tasks of a group without claiming them."""
        return await debug(request, caller())
