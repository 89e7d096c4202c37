"""The gRPC server: its port, options, reflection and health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import grpc
from django.conf import settings
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from taskstore.masstasker import masstasker_pb2, masstasker_pb2_grpc

from ..writer.peers import readiness
from .authentication import Authentication
from .port import GrpcPort
from .servicer import Servicer

MOST_AT_ONCE = 100_000

# By default, gRPC's core refuses some calls of a burst, as when all workers come back after a restart: some from a
# thousand waiting calls on, and all from three thousand on.
OPTIONS = (
    ("grpc.server.max_pending_requests", MOST_AT_ONCE),
    ("grpc.server.max_pending_requests_hard_limit", MOST_AT_ONCE),
)


MASSTASKER = masstasker_pb2.DESCRIPTOR.services_by_name["MassTasker"].full_name
WHOLE_SERVER = ""
WITH_HEALTH = (WHOLE_SERVER, MASSTASKER)


class Health(health_pb2_grpc.HealthServicer):
    """Reports that the server serves, until it starts to stop."""

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
    """gRPC's own reflection, which ends its streams when the server stops."""

    def __init__(self, stopping: asyncio.Event) -> None:
        super().__init__([MASSTASKER, health.SERVICE_NAME, reflection.SERVICE_NAME])
        self._stopping = stopping

    async def ServerReflectionInfo(  # type: ignore[override]  # noqa: N802
        self, requests: AsyncIterable[ServerReflectionRequest], context: Any
    ) -> AsyncIterator[ServerReflectionResponse]:
        # Its type says coroutine.
        answers: Any = super().ServerReflectionInfo(_until(self._stopping, requests), context)
        async for answer in answers:
            yield answer


async def _until(
    stopping: asyncio.Event, requests: AsyncIterable[ServerReflectionRequest]
) -> AsyncIterator[ServerReflectionRequest]:
    """Yield the requests that come before the event."""
    incoming = aiter(requests)
    end = asyncio.ensure_future(stopping.wait())
    try:
        while True:
            coming: asyncio.Future[Any] = asyncio.ensure_future(anext(incoming, None))
            try:
                await asyncio.wait((coming, end), return_when=asyncio.FIRST_COMPLETED)
                request = coming.result() if coming.done() else None
            finally:
                coming.cancel()
            if not request:
                return
            yield request
    finally:
        end.cancel()


# On one port. A listener accepts one call at a time, so with only one, the writer would get no batches.
LISTENERS = 4
GRACE_S = 3_600.0  # Unlimited in effect: the server decides for all protocols how long it waits when it stops.
PROBE_MS = 60_000  # Silent clients are pinged this often: one that waits for a task may have disconnected.
SILENCE_MS = 20_000  # A client that does not answer a ping for so long is gone.
PROBED_MS = 10_000  # Clients may ping this often; more would cost them the connection.


class GrpcServer:
    """Serves on the current event loop, from its creation until it is ended."""

    def __init__(self, port: GrpcPort) -> None:
        self._withdrawn, self._stopping = asyncio.Event(), asyncio.Event()
        readiness.when_withdrawn(self._withdrawn.set)
        self._servers = [_server(self._withdrawn, self._stopping, port.address) for _ in range(LISTENERS)]
        # Calls that arrive before the start wait for it.
        self._started = asyncio.gather(*(server.start() for server in self._servers))
        self._ended: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._ended is not None and not self._ended.done()

    def end(self) -> None:
        """Accept no more calls; calls in progress are finished."""

        async def stop() -> None:
            await self._started
            await asyncio.gather(*(server.stop(GRACE_S) for server in self._servers))

        self._withdrawn.set()
        self._stopping.set()
        if self._ended is None:
            self._ended = asyncio.ensure_future(stop())

    async def ended(self) -> None:
        if self._ended:
            await self._ended


def _server(withdrawn: asyncio.Event, stopping: asyncio.Event, address: str) -> grpc.aio.Server:
    options = [
        *OPTIONS,
        ("grpc.so_reuseport", 1),  # All listeners of this server share the port, which no other process gets.
        ("grpc.max_receive_message_length", settings.TASKSTORE_GRPC_MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", -1),  # Stored tasks are always sent.
        ("grpc.keepalive_time_ms", PROBE_MS),
        ("grpc.keepalive_timeout_ms", SILENCE_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", PROBED_MS),
    ]
    server = grpc.aio.server(interceptors=[Authentication()], options=options)
    masstasker_pb2_grpc.add_MassTaskerServicer_to_server(Servicer(), server)
    health_pb2_grpc.add_HealthServicer_to_server(Health(withdrawn), server)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(Reflection(stopping), server)
    # TLS needs a certificate. Without one, the caller binds an address that only this machine can reach.
    certificate, key = settings.TASKSTORE_GRPC_CERTIFICATE, settings.TASKSTORE_GRPC_KEY
    if certificate and key:
        pair = key.read_bytes(), certificate.read_bytes()
        server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    else:
        server.add_insecure_port(address)
    return server
