"""Who calls: a program with a token, or, without tokens, whoever is on this machine."""

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

from ..access import tokens
from ..access.bodies_in_flight import LEAST_BYTES, REASON, RETRY_AFTER_S, Charge, sender_of
from ..access.policy import Action, may, scope_needed
from ..access.request_limits import BY_ADDRESS, BY_TOKEN, WRONG_TOKENS, beyond_proxies, network
from ..managers import limits
from ..models import Token
from ..offload.threads import beside_the_loop as beside
from . import requests, statuses
from .message_size import LIGHT_BYTES, pieces_of
from .statuses import CallRefused
from .threads import beside_the_loop

OPEN = "/grpc.health.v1.Health/"  # Whoever starts and watches servers has no token.

Context = ServicerContext[Any, Any]
Handler: TypeAlias = "RpcMethodHandler[Any, Any]"  # Not subscriptable at run time.

_caller: ContextVar[Token] = ContextVar("caller")


def caller() -> Token:
    """Who makes the call that runs now."""
    return _caller.get()


def must_reach(token: Token, action: Action, groups: Iterable[str] = ()) -> None:
    """Raise CallRefused unless the token may do this, in each of the groups that the request names."""
    if not may(token, action):
        raise CallRefused(StatusCode.PERMISSION_DENIED, scope_needed(token, action))
    for group in groups:
        if not may(token, action, group):
            raise CallRefused(StatusCode.PERMISSION_DENIED, f'this token has no access to the group "{group}"')


class Authentication(ServerInterceptor):
    """Lets nobody in without a valid token, too often, or with bytes that are no message; ends calls with a status."""

    def __init__(self) -> None:
        self._guarded: dict[str, Handler] = {}  # By method: they are asked for with each call.

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
    behaviour: Any = handler.unary_unary  # Typed as that of a server with threads.

    async def answer(body: bytes, context: Context) -> Any:
        charge = Charge(_sender(context) if len(body) > LEAST_BYTES else "")
        try:
            _caller.set(await caller_of(context))
            if len(body) > LIGHT_BYTES:
                if not charge.raise_to(len(body)):
                    raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, REASON, retry_after_s=RETRY_AFTER_S)
                request = await beside(_decoded_bit_by_bit, handler.request_deserializer, body)
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

    # Without a deserializer: gRPC's own answer to bytes that are no message would be UNKNOWN.
    return grpc.unary_unary_rpc_method_handler(answer, None, handler.response_serializer)


def _guarded_stream(handler: Handler, method: str) -> Handler:
    behaviour: Any = handler.stream_stream

    async def answer(requests: Any, context: Context) -> AsyncIterator[Any]:
        # Reflection too, from the loopback as well: a proxy on this machine calls from there, and need not say so.
        try:
            await caller_of(context)
        except Exception as error:
            await statuses.end(context, method, error)
        async for response in behaviour(requests, context):
            yield response

    return grpc.stream_stream_rpc_method_handler(
        answer,
        handler.request_deserializer,
        handler.response_serializer,
    )


def _decoded(read: Any, body: bytes) -> Any:
    """The request. Raises InvalidInput when the bytes are none."""
    try:
        request = read(body)
    except DecodeError:
        raise InvalidInput({"request": ["must be a valid message of masstasker.proto"]}) from None
    if isinstance(request, UpdateRequest):
        requests.refuse_plain_ids([body])
    return request


def _decoded_bit_by_bit(read: Any, body: bytes) -> Any:
    """The request, of a body that would keep everybody waiting if it were read at once.

    Raises InvalidInput when the bytes are none, LimitExceeded when it holds more than it may.
    """
    try:
        request = read(b"")
        # All of them first: nothing is made of what is refused.
        for piece in (pieces := list(pieces_of(type(request), body, limits()))):
            request.MergeFromString(piece)
    except DecodeError:
        raise InvalidInput({"request": ["must be a valid message of masstasker.proto"]}) from None
    if isinstance(request, UpdateRequest):
        requests.refuse_plain_ids(pieces)
    return request


async def caller_of(context: Context) -> Token:
    """Who calls. Raises CallRefused when that is nobody who may, or when they call too often."""
    token = tokens.ANYBODY if settings.TASKSTORE_NO_AUTH else await _token_of(context)
    if BY_ADDRESS.rate:
        _slow_down(BY_ADDRESS.take(_network(context)))
    if BY_TOKEN.rate:
        _slow_down(BY_TOKEN.take(token.pk))
    return token


async def _token_of(context: Context) -> Token:
    secret = _secret(context)
    if tokens.is_known(secret):
        token = tokens.recently_valid(secret)
    else:
        _slow_down(WRONG_TOKENS.wait_s(_network(context)))
        token = await beside_the_loop(tokens.recently_valid, secret)
    if token is None:
        WRONG_TOKENS.take(_network(context))
        raise no_token()
    return token


def no_token() -> CallRefused:
    return CallRefused(StatusCode.UNAUTHENTICATED, "the token is unknown, expired or revoked")


def _secret(context: Context) -> str:
    scheme, _, secret = _said(context, "authorization").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        text = "send a token as metadata: authorization: Bearer <token>"
        raise CallRefused(StatusCode.UNAUTHENTICATED, text)
    return secret.strip()


def _said(context: Context, name: str) -> str:
    """What the call's metadata say under this name."""
    values = [value for key, value in context.invocation_metadata() or () if key == name]
    return str(values[-1]) if values else ""


def _sender(context: Context) -> str:
    """Who counts for the bytes of the call."""
    authorization, forwarded = _said(context, "authorization"), _said(context, "x-forwarded-for")
    return sender_of(authorization, _address(context.peer()), forwarded)


def _slow_down(wait_s: int) -> None:
    if wait_s:
        text = f"too many requests: try again in {wait_s} s"
        raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text, retry_after_s=wait_s)


def _network(context: Context) -> str:
    """Where the call comes from, as REST's limits see it."""
    return network(beyond_proxies(_address(context.peer()), _said(context, "x-forwarded-for")))


def _address(peer: str) -> str:
    """Of `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000` what is between."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")
