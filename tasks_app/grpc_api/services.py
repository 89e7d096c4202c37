"""The two standard services beside our own: health, and reflection, by which tools learn what there is.

Ours, as a stream of those that come with gRPC would keep a server from ending for as long as a client holds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from ..masstasker import masstasker_pb2

MASSTASKER = masstasker_pb2.DESCRIPTOR.services_by_name["MassTasker"].full_name
WHOLE_SERVER = ""
WITH_HEALTH = (WHOLE_SERVER, MASSTASKER)


class Health(health_pb2_grpc.HealthServicer):
    """Serving, from the start until the server is told to end."""

    def __init__(self, withdrawn: asyncio.Event) -> None:
        self._withdrawn = withdrawn

    async def Check(self, request: HealthCheckRequest, context: Any) -> HealthCheckResponse:  # noqa: N802 - its name.
        if request.service not in WITH_HEALTH:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service}")
        return self._answer(request)

    async def Watch(  # noqa: N802
        self, request: HealthCheckRequest, context: Any
    ) -> AsyncIterator[HealthCheckResponse]:
        yield self._answer(request)
        await self._withdrawn.wait()
        yield self._answer(request)

    def _answer(self, request: HealthCheckRequest) -> HealthCheckResponse:
        if request.service not in WITH_HEALTH:
            return HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        status = HealthCheckResponse.NOT_SERVING if self._withdrawn.is_set() else HealthCheckResponse.SERVING
        return HealthCheckResponse(status=status)


class Reflection(reflection.aio.ReflectionServicer):
    """gRPC's own, for as long as the server does not end."""

    def __init__(self, ending: asyncio.Event) -> None:
        super().__init__([MASSTASKER, health.SERVICE_NAME, reflection.SERVICE_NAME])
        self._ending = ending

    async def ServerReflectionInfo(  # type: ignore[override]  # noqa: N802
        self, requests: AsyncIterable[ServerReflectionRequest], context: Any
    ) -> AsyncIterator[ServerReflectionResponse]:
        # Its types call it a coroutine.
        answers: Any = super().ServerReflectionInfo(_until(self._ending, requests), context)
        async for answer in answers:
            yield answer


async def _until(
    ending: asyncio.Event, requests: AsyncIterable[ServerReflectionRequest]
) -> AsyncIterator[ServerReflectionRequest]:
    """Those that come before the event."""
    incoming = aiter(requests)
    end = asyncio.ensure_future(ending.wait())
    try:
        while request := await _before(end, anext(incoming, None)):
            yield request
    finally:
        end.cancel()


async def _before(end: asyncio.Future[Any], request: Awaitable[Any]) -> ServerReflectionRequest | None:
    """The request; None when the end comes first, or there is no other."""
    coming = asyncio.ensure_future(request)
    try:
        await asyncio.wait((coming, end), return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() else None
    finally:
        coming.cancel()
