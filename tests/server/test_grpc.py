"""gRPC as whoever starts a server and whoever calls it notices; what a call means is for tests/grpc_api."""

import queue
import signal
import socket
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from tasks_app.grpc_api.serving import LISTENERS
from taskstore.masstasker.masstasker_pb2 import QueryRequest, Task, UpdateRequest
from taskstore.masstasker.masstasker_pb2_grpc import MassTaskerStub
from taskstore_project.base_command import CannotRun
from taskstore_project.serving.listening import check_certificate, refuse_plaintext, resolve
from tests.certificates import make_certificate
from tests.served import free_port

from .harness import END_SECONDS, empty, wait_for

ADD = UpdateRequest(created=[Task(group="mail")])
WAIT = QueryRequest(group="mail", wait=True)
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
SERVICE = "masstasker.MassTasker"
PATIENCE_S = 60


class Client:
    """A connection of its own, with a token."""

    def __init__(self, channel: grpc.Channel, token: str = "") -> None:
        self.metadata = [("authorization", f"Bearer {token}")] if token else []
        self.tasks: Any = MassTaskerStub(channel)
        self.health: Any = health_pb2_grpc.HealthStub(channel)
        self.reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)

    def add(self):
        return self.update(ADD).result().created_ids

    def update(self, request):
        return self.tasks.Update.future(request, metadata=self.metadata, timeout=PATIENCE_S, wait_for_ready=True)

    def wait(self):
        return self.tasks.Query.future(WAIT, metadata=self.metadata, timeout=PATIENCE_S)

    def status(self, service=""):
        return self.health.Check(HealthCheckRequest(service=service), timeout=PATIENCE_S).status


@pytest.fixture
def port():
    """Each of these tests needs its own, as several run at the same time."""
    return str(free_port())


@contextmanager
def client_of(port, token="", credentials=None):
    address, own = f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]
    channel = grpc.secure_channel(address, credentials, own) if credentials else grpc.insecure_channel(address, own)
    with channel:
        yield Client(channel, token)


@pytest.fixture
def server(store, command, port):
    with store.up("--grpc-port", port, command=command) as server:
        yield server


@pytest.fixture
def client(server, store, port):
    with client_of(port, store.token) as client:
        yield client


@pytest.fixture
def lasting_port(lasting_server, lasting_store):
    yield lasting_store.grpc.rpartition(":")[2]
    empty(lasting_server, lasting_store.token)


def test_nobody_who_waits_or_watches_holds_up_its_end(server, client):
    requests: queue.Queue[ServerReflectionRequest | None] = queue.Queue()
    requests.put(ServerReflectionRequest(list_services=""))
    tool = client.reflection.ServerReflectionInfo(
        iter(requests.get, None), timeout=PATIENCE_S, metadata=client.metadata
    )
    next(tool)
    health = client.health.Watch(HealthCheckRequest(service=SERVICE), timeout=PATIENCE_S)
    assert next(health).status == SERVING
    waiting = [client.wait() for _ in range(3)]
    assert client.status() == SERVING  # Sent after them on the same connection.
    told_s = time.monotonic()
    server.tell(signal.SIGTERM)
    assert [call.code() for call in waiting] == [grpc.StatusCode.UNAVAILABLE] * 3
    assert [answer.status for answer in health] == [NOT_SERVING]
    assert list(tool) == []
    assert server.process.wait(END_SECONDS) == 0
    assert time.monotonic() - told_s < 5
    assert server.complaints == ""
    requests.put(None)


def test_it_answers_what_it_was_asked_before_it_ends(server, client, store):
    with store.nobody_can_write():
        asked = client.update(ADD)
        assert client.status() == SERVING
        server.tell(signal.SIGTERM)
        wait_for(lambda: is_refused(client), "the end of new calls")
    assert len(asked.result().created_ids) == 1
    assert server.process.wait(END_SECONDS) == 0
    assert server.complaints == ""


def is_refused(client):
    try:
        client.status()
    except grpc.RpcError as refusal:
        return refusal.code() is grpc.StatusCode.UNAVAILABLE
    return False


@pytest.mark.once
def test_a_second_server_does_not_get_its_port(lasting_server, lasting_port, sqlite_store):
    told = sqlite_store.manage("up", "--port", "0", "--grpc-port", lasting_port)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == (
        f"taskstore: can't listen on port {lasting_port} of 127.0.0.1 (Address already in use): "
        "stop the program that uses it, or choose another port with --grpc-port (0: no gRPC)\n"
    )


@pytest.mark.once
def test_nobody_gets_a_port_that_is_held_for_listeners_of_ours(port):
    address = resolve("127.0.0.1", int(port), "--grpc-port")
    with address.share(), ExitStack() as ours:
        for taking in (address.bind, address.share):
            with pytest.raises(CannotRun, match="choose another port with --grpc-port"):
                taking()
        for _ in range(2):
            listener = ours.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address.name)
            listener.listen()
        with pytest.raises(CannotRun):
            address.share()
    with address.share():
        pass


def test_each_process_of_a_server_listens(store, port):
    if not store.database_url:
        pytest.skip("SQLite has one server process")
    with store.up("--grpc-port", port, command="serve --workers 2") as server:
        assert listeners(port) == 2 * LISTENERS
        with ExitStack() as stack:
            clients = [stack.enter_context(client_of(port, store.token)) for _ in range(8)]
            added = [client.add()[0] for client in clients]
        assert len(server.ask("GET", "/group/mail", store.token).json()) == len({*added}) == 8


def listeners(port):
    """How many sockets listen there, as the system sees it (proc(5))."""
    # gRPC takes addresses of both kinds for those of IPv6.
    lines = (line.split() for file in ("tcp", "tcp6") for line in Path("/proc/net", file).read_text().splitlines())
    return sum(1 for line in lines if line[1].endswith(f":{int(port):04X}") and line[3] == "0A")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.mark.once
def test_with_a_certificate_it_speaks_nothing_but_tls(sqlite_store, port, certificate):
    names = dict(zip(("TASKSTORE_GRPC_CERTIFICATE", "TASKSTORE_GRPC_KEY"), map(str, certificate), strict=True))
    credentials = grpc.ssl_channel_credentials(certificate[0].read_bytes())
    with sqlite_store.up("--grpc-port", port, **names):
        with client_of(port, sqlite_store.token, credentials) as client:
            assert len(client.add()) == 1
        with client_of(port) as stranger, pytest.raises(grpc.RpcError) as refused:
            stranger.status()
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.once
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - just that.
def test_other_machines_come_by_tls_alone(settings, host, certificate):
    with pytest.raises(CannotRun, match=r"set TASKSTORE_GRPC_CERTIFICATE .* or turn gRPC off with --grpc-port 0"):
        refuse_plaintext(resolve(host, 1))
    settings.TASKSTORE_GRPC_CERTIFICATE, settings.TASKSTORE_GRPC_KEY = certificate
    refuse_plaintext(resolve(host, 1))
    check_certificate()


@pytest.mark.once
@pytest.mark.parametrize("wrong", ["nowhere.pem", "empty.pem", None])
def test_a_certificate_that_cannot_be_used_is_told(settings, tmp_path, certificate, wrong):
    (tmp_path / "empty.pem").touch()
    settings.TASKSTORE_GRPC_CERTIFICATE = certificate[0]
    settings.TASKSTORE_GRPC_KEY = wrong and tmp_path / wrong
    with pytest.raises(CannotRun, match=r"TASKSTORE_GRPC_CERTIFICATE.*TASKSTORE_GRPC_KEY"):
        check_certificate()


def test_a_store_begins_with_one_task_in_the_group_that_is_named(empty_place):
    store = empty_place
    for found in ([1], []):
        with store.up("--bootstrap-group", "start") as server:
            tasks = server.ask("GET", "/group/start", store.token).json()
            assert [task["id"] for task in tasks] == found
            asked = {"clientid": 1, "deletes": found, "adds": [{"group": "mail"}]}
            assert server.ask("POST", "/update", store.token, json=asked).json()["error"] is None
            assert server.end() == 0


@pytest.mark.once
def test_a_group_that_cannot_be_is_told(sqlite_store):
    told = sqlite_store.manage("up", "--port", "0", "--grpc-port", "0", "--bootstrap-group", "x" * 256)
    assert told.returncode == 2
    assert "at most 255 characters" in told.stderr
