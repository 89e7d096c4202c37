"""Query: read the first task of a group, or own it for a time."""

from __future__ import annotations

from math import ceil
from typing import Any

from grpc import StatusCode
from grpc.aio import ServicerContext

from ..masstasker.masstasker_pb2 import QueryRequest, QueryResponse
from ..models import Task, Token
from ..operations import Query, TaskRecord
from ..policy import Action, scope_of
from ..waiting_tokens import waiting_tokens
from .answers import message_of
from .authentication import must_reach, no_token
from .reading import duration_in, time_in
from .statuses import CallRefused

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
        return await Task.objects.adecide(asked)
    async with waiting_tokens.while_valid(token, no_token()):
        return await Task.objects.adecide(asked)


def _left_ms(context: ServicerContext[Any, Any]) -> int:
    """How long until the client's deadline, if it has one."""
    left_s = context.time_remaining()
    return YEAR_MS if left_s is None or left_s > YEAR_MS / 1_000 else ceil(left_s * 1_000)


def _nothing(asked: Query, context: ServicerContext[Any, Any]) -> CallRefused:
    if not asked.wait_ms:
        return CallRefused(StatusCode.NOT_FOUND, f'nothing is available in the group "{asked.groups[0]}"')
    if _left_ms(context) > 0:
        return CallRefused(StatusCode.UNAVAILABLE, "the server is stopping: try again", retry_after_s=1)
    return CallRefused(StatusCode.DEADLINE_EXCEEDED, "nothing became available in time")
