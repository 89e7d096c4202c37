"""The servicer on a socket, on the loop of a writer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tasks_app.access import tokens
from tasks_app.grpc_api.authentication import Authentication
from tasks_app.grpc_api.servicer import Servicer
from tasks_app.grpc_api.serving import OPTIONS
from tasks_app.models import Scope
from tasks_app.writer.writer import Writer
from taskstore.masstasker.masstasker_pb2_grpc import add_MassTaskerServicer_to_server

from .client import Client

PATIENCE_S = 150  # For thousands of calls while other tests keep all cores busy.


class Serving:
    """A server that listens while it is entered, on a loop in a thread; no writer yet."""

    def __enter__(self) -> Serving:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.address = self.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._server.stop(None))
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    async def _start(self) -> str:
        self._server = grpc.aio.server(interceptors=[Authentication()], options=OPTIONS)
        add_MassTaskerServicer_to_server(Servicer(), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), self._server)
        reflection.enable_server_reflection([reflection.SERVICE_NAME], self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def start_writer(self) -> Writer:
        return Writer.start()


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    with Serving() as serving:
        yield serving


@pytest.fixture
def writer(serving: Serving, transactional_db: None) -> Iterator[Writer]:
    writer = serving.run(serving.start_writer())
    yield writer
    serving.run(writer.stop())


@pytest.fixture
def until_waiting(serving: Serving, writer: Writer) -> Callable[[int], None]:
    """Returns when so many claims wait."""

    async def wait(count: int) -> None:
        while writer.waiting != count:  # noqa: ASYNC110 - it tells nobody when that changes.
            await asyncio.sleep(0.005)

    return lambda count: serving.run(wait(count))


Connect = Callable[..., Client]


@pytest.fixture
def connect(serving: Serving, writer: Writer) -> Iterator[Connect]:
    """Makes clients, each with a token of a scope and for groups."""
    clients = []

    def connected(scope: Scope = Scope.WORK, *groups: str) -> Client:
        _, secret = tokens.create("Ann", scope, groups)
        clients.append(Client(serving.address, secret))
        return clients[-1]

    yield connected
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Connect) -> Client:
    """One that may operate, too."""
    return connect(Scope.OPERATE)
