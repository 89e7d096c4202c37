"""Debug: the tasks of a group, or of all."""

from __future__ import annotations

from django.conf import settings
from grpc import StatusCode

from ..counts import counts_of, group_counts
from ..managers import TaskQuerySet
from ..masstasker import masstasker_pb2 as pb
from ..models import Task, Token
from ..operations import GroupScope
from ..policy import Action, scope_of
from ..validation import group_name, refuse
from .answers import message_of
from .authentication import must_reach
from .statuses import CallRefused
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
        number = sum(counts.total for counts in group_counts(scope).values())
    return pb.DebugResponse(tasks=_messages(tasks.longest_available_first()[:limit]), num_tasks=number)


def _messages(tasks: TaskQuerySet) -> list[pb.Task]:
    """Raises CallRefused when they are more than an answer should hold."""
    messages, size = list[pb.Task](), 0
    for task in tasks.of_one_moment():
        messages.append(message_of(task))
        size += messages[-1].ByteSize()
        if size > settings.TASKSTORE_MAX_REQUEST_BYTES:
            text = f"more than {settings.TASKSTORE_MAX_REQUEST_BYTES} bytes: name a lower limit"
            raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text)
    return messages
