"""Our servers in the tests' own process: what a test patches they see, and its database is theirs."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import grpc
import httpx
import pytest
from asgiref.sync import sync_to_async
from django.core.signals import request_finished
from django.db import close_old_connections, connections
from django.db.models.signals import post_migrate
from django.dispatch import receiver
from psycopg.pq import TransactionStatus

from tasks_app.control.progress import Reports
from tasks_app.database.postgresql_pipeline import Pipeline
from tasks_app.grpc_api.port import GrpcPort
from tasks_app.grpc_api.serving import GrpcServer
from tasks_app.rest_api.lane import Lane
from tasks_app.writer.connection import PostgreSQLConnection
from tasks_app.writer.writer import Writer
from taskstore_project.asgi import application
from taskstore_project.serving.daphne_server import Server as Daphne
from taskstore_project.serving.listening import local_url
from taskstore_project.serving.uvicorn_server import Server as Uvicorn

T = TypeVar("T")

PATIENCE_S = 60
UNLIMITED = [("grpc.max_receive_message_length", -1)]


@receiver(request_finished)
def let_go(**_: object) -> None:
    """Also when Django's own receiver is away: its test client takes it from all threads while its request ends."""
    if threading.current_thread() is not threading.main_thread():
        close_old_connections()


def free_port() -> int:
    """For what does not say which one it took."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def noting(requests: set[asyncio.Task[Any]]) -> Any:
    """Our application, which has in `requests` what it is doing."""

    # A function, as uvicorn tells by that what it may call.
    async def noted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and (task := asyncio.current_task()):
            requests.add(task)
            task.add_done_callback(requests.discard)
        await application(scope, receive, send)

    return noted


class Served:
    """A server that listens on a socket, in a thread, while it is entered; and one client of it.

    For a whole session: Twisted's event loop starts only once in a process.
    """

    def __init__(self, kind: type[Daphne | Uvicorn]) -> None:
        self._requests = set[asyncio.Task[Any]]()  # One whose answer has arrived may still be letting go of things.
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = local_url(listener)
        self._begun: Future[asyncio.AbstractEventLoop] = Future()
        self.lane = Lane()
        self._server = kind(
            noting(self._requests), listener, ready_callable=lambda: None, start_writer=self._begin, lane=self.lane
        )
        self._thread = threading.Thread(target=self._server.run, name="server")
        self._kept: Pipeline | None = None
        self._is_outdated = False  # Whether its statements are about tables that have been made anew since.
        post_migrate.connect(self._outdate)

    def __enter__(self) -> Self:
        self._thread.start()
        self._loop = self._begun.result(PATIENCE_S)
        # It forgets idle connections before the server closes them.
        self._client = httpx.Client(
            base_url=self.url, timeout=PATIENCE_S, limits=httpx.Limits(keepalive_expiry=2), trust_env=False
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        if self._kept:
            self.run(self._kept.close())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._server.end)
        self._thread.join()

    @contextmanager
    def with_writer(self) -> Iterator[Self]:
        """For a test: the writer of this process runs, and every verb goes through it."""
        self.writer = self.run(self._start_writer())
        try:
            yield self
        finally:
            self.run(self._stop_writer())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What comes of it on the server's loop."""
        return self.start(coroutine).result(PATIENCE_S)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def request(self, method: str, path: str, **asked: Any) -> httpx.Response:
        return self._client.request(method, path, **asked)

    def _begin(self) -> None:
        # Here the server would start its writer; but that comes and goes with each test.
        self._begun.set_result(asyncio.get_running_loop())

    async def _start_writer(self) -> Writer:
        writer = Writer.start()
        writer.keep(Reports(every_s=0.05))
        if isinstance(writer._connection, PostgreSQLConnection):
            if self._kept and self._is_outdated:
                await self._kept.close()
                self._kept = None
            writer._connection._connection, self._kept = self._kept, None
            self._is_outdated = False
        if writer._neighbours:  # There are none, and to look for them takes another connection.
            await writer._neighbours.stop()
            writer._neighbours = None
        return writer

    async def _stop_writer(self) -> None:
        if isinstance(self.writer._connection, PostgreSQLConnection):
            self._keep_the_connection(self.writer._connection)
        await self.writer.stop()
        # Once the test has ended nobody may use the database, not even to close a connection.
        if self._requests:
            await asyncio.wait([*self._requests], timeout=PATIENCE_S)
        # The thread in which the loop looks up tokens keeps its connection.
        await sync_to_async(connections.close_all)()

    def _outdate(self, **_: object) -> None:
        self._is_outdated = True

    def _keep_the_connection(self, connection: PostgreSQLConnection) -> None:
        """For the next test's writer: to open one and to plan its statements takes PostgreSQL as long as most tests."""
        close = connection.close

        async def keep() -> None:
            pipeline = connection._connection
            if pipeline and not pipeline.is_closed and pipeline._libpq.transaction_status == TransactionStatus.IDLE:
                connection._connection, self._kept = None, pipeline
            await close()

        connection.close = keep  # type: ignore[method-assign]


@pytest.fixture(scope="session")
def daphne(django_db_setup: None) -> Iterator[Served]:
    """The server of `up`."""
    with Served(Daphne) as server:
        yield server


@pytest.fixture(scope="session")
def lasting_channel(daphne: Served) -> Iterator[grpc.Channel]:
    """To gRPC beside the server of `up`."""
    port = GrpcPort(address=f"127.0.0.1:{free_port()}")
    server = daphne.run(begun(port))
    with grpc.insecure_channel(port.address, UNLIMITED) as channel:
        yield channel
    daphne.run(ended(server))


async def begun(port: GrpcPort) -> GrpcServer:
    return GrpcServer(port)


async def ended(server: GrpcServer) -> None:
    server.end()
    await server.ended()


@pytest.fixture(scope="session")
def uvicorn(django_db_setup: None) -> Iterator[Served]:
    """The server of `serve`."""
    with Served(Uvicorn) as server:
        yield server


@pytest.fixture
def served(daphne: Served, transactional_db: None) -> Iterator[Served]:
    with daphne.with_writer():
        yield daphne


@pytest.fixture
def grpc_channel(served: Served, lasting_channel: grpc.Channel) -> grpc.Channel:
    return lasting_channel


@pytest.fixture
def served_by_uvicorn(uvicorn: Served, transactional_db: None) -> Iterator[Served]:
    with uvicorn.with_writer():
        yield uvicorn
