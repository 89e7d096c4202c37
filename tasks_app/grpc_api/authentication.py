"""Authenticate gRPC calls by token, limit their rate and size, and turn errors into statuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextvars import ContextVar
from traceback import clear_frames
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc
from django.conf import settings
from google.protobuf.message import DecodeError
from grpc import HandlerCallDetails, RpcMethodHandler, StatusCode
from grpc.aio import AbortError, ServerInterceptor, ServicerContext

from taskstore.errors import InvalidInput
from taskstore.masstasker.masstasker_pb2 import UpdateRequest

from ..access import request_limits, tokens
from ..access.policy import Action, may, scope_needed
from ..managers import limits
from ..models import Token
from ..offload.threads import beside_the_loop, in_a_database_thread
from . import requests, statuses
from .message_size import LIGHT_BYTES, pieces_of
from .statuses import CallRefused

OPEN = "/grpc.health.v1.Health/"  # Health checks need no token.

Context = ServicerContext[Any, Any]
Handler: TypeAlias = "RpcMethodHandler[Any, Any]"  # Not subscriptable at run time.

_caller: ContextVar[Token] = ContextVar("caller")


def caller() -> Token:
    """Return the token of the current call."""
    return _caller.get()


def must_reach(token: Token, action: Action, groups: Iterable[str] = ()) -> None:
    """Raise CallRefused unless the token may do this, in each of the groups that the request names."""
    if not may(token, action):
        raise CallRefused(StatusCode.PERMISSION_DENIED, scope_needed(token, action))
    for group in groups:
        if not may(token, action, group):
            raise CallRefused(StatusCode.PERMISSION_DENIED, f'this token has no access to the group "{group}"')


class Authentication(ServerInterceptor):
    """Refuses calls without a valid token, beyond a limit, or with invalid bytes, and ends calls with a status."""

    def __init__(self) -> None:
        self._guarded: dict[str, Handler] = {}  # By method, as each call asks for its handler.

    async def intercept_service(
        self,
        continuation: Callable[[HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or method.startswith(OPEN):
            return handler
        if method not in self._guarded:
            self._guarded[method] = (_guarded if handler.unary_unary else _guarded_stream)(handler, method)
        return self._guarded[method]


def _guarded(handler: Handler, method: str) -> Handler:
    behaviour: Any = handler.unary_unary  # Its type is that of a server with threads.

    async def answer(body: bytes, context: Context) -> Any:
        charge = request_limits.Charge(_sender(context) if len(body) > request_limits.LEAST_BYTES else "")
        try:
            _caller.set(await caller_of(context))
            if len(body) > LIGHT_BYTES:
                if not charge.raise_to(len(body)):
                    raise CallRefused(
                        StatusCode.RESOURCE_EXHAUSTED, request_limits.REASON, retry_after_s=request_limits.RETRY_AFTER_S
                    )
                request = await beside_the_loop(_decoded_bit_by_bit, handler.request_deserializer, body)
                body = b""
            else:
                request = _decoded(handler.request_deserializer, body)
            return await behaviour(request, context)
        except AbortError:
            raise
        except Exception as error:
            # gRPC keeps the error of a call for some time, and with it what its frames refer to.
            body = b""
            clear_frames(error.__traceback__)
            await statuses.end(context, method, error)
        finally:
            charge.end()

    # Without a deserializer: gRPC would answer invalid bytes with UNKNOWN.
    return grpc.unary_unary_rpc_method_handler(answer, None, handler.response_serializer)


def _guarded_stream(handler: Handler, method: str) -> Handler:
    behaviour: Any = handler.stream_stream

    async def answer(requests: Any, context: Context) -> AsyncIterator[Any]:
        # Reflection needs a token even from the loopback address, which a local proxy may call from.
        try:
            await caller_of(context)
        except Exception as error:
            await statuses.end(context, method, error)
        async for response in behaviour(requests, context):
            yield response

    return grpc.stream_stream_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)


def _decoded(read: Any, body: bytes) -> Any:
    """Parse the request. Raises InvalidInput for invalid bytes."""
    try:
        request = read(body)
    except DecodeError:
        raise InvalidInput({"request": ["must be a valid message of masstasker.proto"]}) from None
    if isinstance(request, UpdateRequest):
        requests.refuse_plain_ids([body])
    return request


def _decoded_bit_by_bit(read: Any, body: bytes) -> Any:
    """Parse a large request in pieces, outside the event loop.

    Raises InvalidInput for invalid bytes, LimitExceeded when it holds more than it may.
    """
    try:
        request = read(b"")
        # All pieces are checked before any message is made.
        for piece in (pieces := list(pieces_of(type(request), body, limits()))):
            request.MergeFromString(piece)
    except DecodeError:
        raise InvalidInput({"request": ["must be a valid message of masstasker.proto"]}) from None
    if isinstance(request, UpdateRequest):
        requests.refuse_plain_ids(pieces)
    return request


async def caller_of(context: Context) -> Token:
    """Return the token of the call. Raises CallRefused without a valid token, and beyond a rate limit."""
    token = tokens.ANYBODY
    if not settings.TASKSTORE_NO_AUTH:
        scheme, _, secret = _metadata(context, "authorization").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            text = "send a token as metadata: authorization: Bearer <token>"
            raise CallRefused(StatusCode.UNAUTHENTICATED, text)
        found = tokens.trusted(secret)
        if found is None:
            _slow_down(request_limits.WRONG_TOKENS.wait_s(_network(context)))
            found = await in_a_database_thread(tokens.recently_valid, secret)
        if found is None:
            request_limits.WRONG_TOKENS.take(_network(context))
            raise no_token()
        token = found
    if request_limits.BY_ADDRESS.rate:
        _slow_down(request_limits.BY_ADDRESS.take(_network(context)))
    if request_limits.BY_TOKEN.rate:
        _slow_down(request_limits.BY_TOKEN.take(token.pk))
    return token


def no_token() -> CallRefused:
    return CallRefused(StatusCode.UNAUTHENTICATED, "the token is unknown, expired or revoked")


def _metadata(context: Context, name: str) -> str:
    """Return the last value of this name in the call's metadata; empty when there is none."""
    values = [value for key, value in context.invocation_metadata() or () if key == name]
    return str(values[-1]) if values else ""


def _sender(context: Context) -> str:
    """Return the client that the bytes of the call count for."""
    authorization, forwarded = _metadata(context, "authorization"), _metadata(context, "x-forwarded-for")
    return request_limits.sender_of(authorization, _address(context.peer()), forwarded)


def _slow_down(wait_s: int) -> None:
    if wait_s:
        text = f"too many requests: try again in {wait_s} s"
        raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text, retry_after_s=wait_s)


def _network(context: Context) -> str:
    """Return the network of the client, as for REST's limits."""
    return request_limits.network(
        request_limits.beyond_proxies(_address(context.peer()), _metadata(context, "x-forwarded-for"))
    )


def _address(peer: str) -> str:
    """Return the address in `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")
