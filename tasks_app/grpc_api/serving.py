"""gRPC on the loop of the server, where the writer is: websockets and waiting claims see its commits at once."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from django.conf import settings
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc

from ..masstasker import masstasker_pb2_grpc
from ..readiness import readiness
from .authentication import Authentication
from .options import OPTIONS
from .port import GrpcPort
from .servicer import Servicer
from .services import Health, Reflection

# On one port. Each takes in one call at a time: with one alone the writer would have no batches, only single calls.
LISTENERS = 4
GRACE_S = 3_600.0  # As long as it takes: how long the server waits at its end it decides for all ways in alike.
PROBE_MS = 60_000  # A silent client is asked so often whether it is there: one that waits for a task may have gone.
SILENCE_MS = 20_000  # Without an answer to that it has.
PROBED_MS = 10_000  # A client may ask us as often; more would cost it the connection.


class GrpcServer:
    """Serves from its making until it is told to end, on the loop that runs now."""

    def __init__(self, port: GrpcPort) -> None:
        self._withdrawn, self._ending = asyncio.Event(), asyncio.Event()
        readiness.when_withdrawn(self._withdrawn.set)
        self._servers = [_server(self._withdrawn, self._ending, port.address) for _ in range(LISTENERS)]
        # Calls that come before they have started wait for it.
        self._started = asyncio.gather(*(server.start() for server in self._servers))
        self._ended: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._ended is not None and not self._ended.done()

    def end(self) -> None:
        """Take no more calls; those that are being answered go on."""
        self._withdrawn.set()
        self._ending.set()
        if self._ended is None:
            self._ended = asyncio.ensure_future(self._end())

    async def ended(self) -> None:
        if self._ended:
            await self._ended

    async def _end(self) -> None:
        await self._started
        await asyncio.gather(*(server.stop(GRACE_S) for server in self._servers))


def _server(withdrawn: asyncio.Event, ending: asyncio.Event, address: str) -> grpc.aio.Server:
    server = grpc.aio.server(interceptors=[Authentication()], options=_options())
    masstasker_pb2_grpc.add_MassTaskerServicer_to_server(Servicer(), server)
    health_pb2_grpc.add_HealthServicer_to_server(Health(withdrawn), server)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(Reflection(ending), server)
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
