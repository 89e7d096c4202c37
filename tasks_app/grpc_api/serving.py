"""The gRPC server: its port, options, reflection and health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from typing import Any

import grpc
from django.conf import settings
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from taskstore.masstasker import masstasker_pb2, masstasker_pb2_grpc

from ..writer.readiness import readiness
from .authentication import Authentication
from .port import GrpcPort
from .servicer import Servicer

MOST_AT_ONCE = 100_000

# gRPC's core refuses some of what arrives in one burst, as when all workers come back after a restart: from a thousand
# calls on that Python has not begun yet, and all from three thousand on.
OPTIONS = (
    ("grpc.server.max_pending_requests", MOST_AT_ONCE),
    ("grpc.server.max_pending_requests_hard_limit", MOST_AT_ONCE),
)


MASSTASKER = masstasker_pb2.DESCRIPTOR.services_by_name["MassTasker"].full_name
WHOLE_SERVER = ""
WITH_HEALTH = (WHOLE_SERVER, MASSTASKER)


class Health(health_pb2_grpc.HealthServicer):
    """Serving, from the start until the server is told to end."""

    def __init__(self, withdrawn: asyncio.Event) -> None:
        self._withdrawn = withdrawn

    async def Check(self, request: HealthCheckRequest, context: Any) -> HealthCheckResponse:  # noqa: N802 - its name.
        if request.service not in WITH_HEALTH:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"service {request.service} does not exist")
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

    def __init__(self, stopping: asyncio.Event) -> None:
        super().__init__([MASSTASKER, health.SERVICE_NAME, reflection.SERVICE_NAME])
        self._stopping = stopping

    async def ServerReflectionInfo(  # type: ignore[override]  # noqa: N802
        self, requests: AsyncIterable[ServerReflectionRequest], context: Any
    ) -> AsyncIterator[ServerReflectionResponse]:
        # Its types call it a coroutine.
        answers: Any = super().ServerReflectionInfo(_until(self._stopping, requests), context)
        async for answer in answers:
            yield answer


async def _until(
    stopping: asyncio.Event, requests: AsyncIterable[ServerReflectionRequest]
) -> AsyncIterator[ServerReflectionRequest]:
    """Those that come before the event."""
    incoming = aiter(requests)
    end = asyncio.ensure_future(stopping.wait())
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


# On one port. Each takes in one call at a time: with one alone the writer would have no batches, only single calls.
LISTENERS = 4
GRACE_S = 3_600.0  # As long as it takes: how long the server waits at its end it decides for all ways in alike.
PROBE_MS = 60_000  # A silent client is asked so often whether it is there: one that waits for a task may have gone.
SILENCE_MS = 20_000  # Without an answer to that it has.
PROBED_MS = 10_000  # A client may ask us as often; more would cost it the connection.


class GrpcServer:
    """Serves from its making until it is told to end, on the loop that runs now."""

    def __init__(self, port: GrpcPort) -> None:
        self._withdrawn, self._stopping = asyncio.Event(), asyncio.Event()
        readiness.when_withdrawn(self._withdrawn.set)
        self._servers = [_server(self._withdrawn, self._stopping, port.address) for _ in range(LISTENERS)]
        # Calls that come before they have started wait for it.
        self._started = asyncio.gather(*(server.start() for server in self._servers))
        self._ended: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._ended is not None and not self._ended.done()

    def end(self) -> None:
        """Take no more calls; those that are being answered go on."""
        self._withdrawn.set()
        self._stopping.set()
        if self._ended is None:
            self._ended = asyncio.ensure_future(self._end())

    async def ended(self) -> None:
        if self._ended:
            await self._ended

    async def _end(self) -> None:
        await self._started
        await asyncio.gather(*(server.stop(GRACE_S) for server in self._servers))


def _server(withdrawn: asyncio.Event, stopping: asyncio.Event, address: str) -> grpc.aio.Server:
    server = grpc.aio.server(interceptors=[Authentication()], options=_options())
    masstasker_pb2_grpc.add_MassTaskerServicer_to_server(Servicer(), server)
    health_pb2_grpc.add_HealthServicer_to_server(Health(withdrawn), server)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(Reflection(stopping), server)
    _listen(server, address)
    return server


def _options() -> list[tuple[str, Any]]:
    return [
        *OPTIONS,
        ("grpc.so_reuseport", 1),  # All listeners of this server share the port, and nobody else: it is held.
        ("grpc.max_receive_message_length", settings.TASKSTORE_GRPC_MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", -1),  # What was taken in goes out too.
        ("grpc.keepalive_time_ms", PROBE_MS),
        ("grpc.keepalive_timeout_ms", SILENCE_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", PROBED_MS),
    ]


def _listen(server: grpc.aio.Server, address: str) -> None:
    """With TLS where there is a certificate. Without one the caller sees to it that nobody else can listen."""
    certificate, key = settings.TASKSTORE_GRPC_CERTIFICATE, settings.TASKSTORE_GRPC_KEY
    if certificate and key:
        pair = key.read_bytes(), certificate.read_bytes()
        server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    else:
        server.add_insecure_port(address)
