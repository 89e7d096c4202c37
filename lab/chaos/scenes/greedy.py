"""A client with a token for one prefix that sends the largest bodies it may, and far larger ones, and reads as much."""

from __future__ import annotations

import http.client
import json
import os
import socket
import statistics
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import grpc

from lab.testing.processes import memory_mb

from ..outcome import Figure, SceneResult, Violation
from ..probe import probing
from ..processes import StoreServer, command, free_port
from ..stage import Stage

PREFIX = "greedy/"
CLIENT = 77
IDLE_S = 3.0
REFUSED_S, PERMITTED_S = 0.1, 0.25  # The permitted delay of a probe.
MEMORY_S = 10.0  # The memory of a request must be released within this time.
MORE_MB = 150.0  # Permitted to remain, for reused buffers and the helper process.
MORE_WHILE_READING_MB = 300.0
ANSWERED_S = 120.0
LOOK_EVERY_S = 0.05
SLOW_S = 10.0
MIB = 2**20

Send = Callable[["Target"], str]  # Returns the status of the answer.


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    server: StoreServer
    grpc_address: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """A request. `is_refused`: whether it exceeds a limit."""

    name: str
    send: Send
    is_refused: bool = True
    adds: int = 0  # So many tasks.


def greedy_client(stage: Stage) -> SceneResult:
    """Measure how long each request delays a probe, and whether the memory is released."""
    port = free_port()
    server = stage.server(*stage.usual_command, "--grpc-port", str(port))
    url = server.variables["DATABASE_URL"]
    words = ("token", "create", "greedy", "--scope", "work", "--groups", f"{PREFIX}*")
    token = command(*words, folder=server.folder, DATABASE_URL=url).strip()
    target = Target(server=server, grpc_address=f"127.0.0.1:{port}", token=token)
    first = Attack(name="", send=rest("/update", small_commit()), is_refused=False, adds=1)
    attempt(target, first)  # Loads modules that the server imports late.
    with probing(server.port) as idle_s:
        time.sleep(IDLE_S)
    usual_s, before_mb = statistics.median(idle_s), memory_mb(server.pid)
    problems, figures = [], []
    for attack in ATTACKS:
        if attack is READS[0]:
            most_mb = left_mb(server, before_mb) + before_mb
        status, delay_s, peak_mb = attempt(target, attack)
        if attack in READS:
            name, more_mb = f"{attack.name} ({status}): more memory", peak_mb - most_mb
            figures.append(Figure(name=name, value=more_mb, limit=MORE_WHILE_READING_MB, unit="MB"))
        if attack.is_refused == (status in ("200", "OK")):
            problems.append(f"{attack.name}: answered {status}")
        limit = REFUSED_S if attack.is_refused else PERMITTED_S
        figures.append(Figure(name=f"{attack.name} ({status}): delay", value=delay_s - usual_s, limit=limit))
    figures.append(Figure(name="more memory after 10 s", value=left_mb(server, before_mb), limit=MORE_MB, unit="MB"))
    # No client notes these requests, so the tasks that the store holds in the end are counted instead.
    expected, found = sum(attack.adds for attack in (first, *ATTACKS)), len(stage.history(server).truth.living)
    if found != expected:
        problems.append(f"{expected} tasks were added, and the store holds {found}")
    permitted = sum(not attack.is_refused for attack in ATTACKS)
    violations = [Violation(text=text) for text in problems]
    return SceneResult(operations=permitted, faults=len(ATTACKS), violations=violations, figures=figures)


def attempt(target: Target, attack: Attack) -> tuple[str, float, float]:
    """Return the status of the response, the longest response time of the probe, and the most memory."""
    with probing(target.server.port) as times_s, ThreadPoolExecutor(1) as aside:
        sent = aside.submit(attack.send, target)
        peak_mb = memory_mb(target.server.pid)
        while not sent.done():
            peak_mb = max(peak_mb, memory_mb(target.server.pid))
            time.sleep(LOOK_EVERY_S)
        time.sleep(0.5)  # Include work after the response.
    return sent.result(), max(times_s, default=0.0), peak_mb


def left_mb(server: StoreServer, before_mb: float) -> float:
    """Return how much more memory is used than before, after 10 s or as soon as it is within the limit."""
    until_s = time.monotonic() + MEMORY_S
    while (more_mb := memory_mb(server.pid) - before_mb) > MORE_MB and time.monotonic() < until_s:
        time.sleep(0.5)
    return more_mb


def rest(path: str, body: Callable[[], bytes], times: int = 1) -> Send:
    return lambda target: [asked(target, "POST", path, body())[0] for _ in range(times)][-1]


def asked(target: Target, method: str, path: str, body: bytes | None = None) -> tuple[str, bytes]:
    """Return the status and the beginning of the response, of which nothing more is kept."""
    connection = http.client.HTTPConnection("127.0.0.1", target.server.port, timeout=ANSWERED_S)
    with closing(connection):
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {target.token}"})
            response = connection.getresponse()
            start = response.read(MIB)
            while response.read(MIB):
                pass
        except (ConnectionError, http.client.IncompleteRead):
            return "cut off", b""
        return str(response.status), start


def get(path: str) -> Send:
    return lambda target: asked(target, "GET", path)[0]


def of_huge_tasks(path: str, body: Callable[[list[int]], Any]) -> Send:
    """Send a request about the ids of the huge tasks."""

    def send(target: Target) -> str:
        ids, after = list[int](), ""
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", target.server.port, timeout=ANSWERED_S)
            with closing(connection):
                query = f"/search?q=group:{PREFIX}huge&limit=200{after}"
                connection.request("GET", query, headers={"Authorization": f"Bearer {target.token}"})
                page = json.loads(connection.getresponse().read())
            ids += [task["id"] for task in page["tasks"]]
            if page["after"] is None:
                break
            after = f"&after={page['after']}"
        return asked(target, "POST", path, json.dumps(body(ids)).encode())[0]

    return send


def at_once(number: int, send: Send) -> Send:
    """Send a request several times at once. Returns the status that most have."""

    def sent(target: Target) -> str:
        with ThreadPoolExecutor(number) as others:
            return statistics.mode(others.map(send, [target] * number))

    return sent


def slow_readers(target: Target) -> str:
    """Read several long lists a few bytes at a time."""
    head = (
        f"GET /group/{PREFIX}huge?owned=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {target.token}\r\n\r\n"
    )
    with ExitStack() as opened:
        readers = [
            opened.enter_context(socket.create_connection(("127.0.0.1", target.server.port), ANSWERED_S))
            for _ in range(10)
        ]
        for reader in readers:
            reader.sendall(head.encode())
        statuses = [reader.recv(100)[9:12].decode() for reader in readers]
        until_s = time.monotonic() + SLOW_S
        while time.monotonic() < until_s:
            for reader in readers[: statuses.count("200")]:
                reader.recv(1_000)
            time.sleep(0.1)
    return statistics.mode(statuses)


def by_grpc(method: str, body: Callable[[], bytes]) -> Send:
    def send(target: Target) -> str:
        unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        with grpc.insecure_channel(target.grpc_address, options=unlimited) as channel:
            ask: Any = channel.unary_unary(f"/masstasker.MassTasker/{method}")
            try:
                ask(body(), metadata=[("authorization", f"Bearer {target.token}")], timeout=ANSWERED_S)
            except grpc.RpcError as error:
                return str(error.code().name)
            return "OK"

    return send


def socket_frames(target: Target) -> str:
    """Send 64 MiB of unsolicited frames over a websocket without a session."""
    key = b64encode(os.urandom(16)).decode()
    head = (
        f"GET /console/live HTTP/1.1\r\nHost: 127.0.0.1:{target.server.port}\r\nOrigin: {target.server.url}\r\n"
        f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    )
    frame = b"\x82\xff" + MIB.to_bytes(8, "big") + bytes(4 + MIB)
    with socket.create_connection(("127.0.0.1", target.server.port), ANSWERED_S) as connection:
        try:
            connection.sendall(head.encode())
            for _ in range(64):
                connection.sendall(frame)
            return connection.recv(100).decode(errors="replace").partition("\r\n")[0] or "cut off"
        except ConnectionError:
            return "cut off"


# ---- Bodies. Each is created when it is sent, because together they would fill the memory.


def with_items(field: str, item: str, count: int, **others: object) -> Callable[[], bytes]:
    """Return a JSON object with a list that repeats an item."""

    def made() -> bytes:
        start = json.dumps({"clientid": CLIENT, **others})[:-1].encode()
        return start + f', "{field}": ['.encode() + b",".join([item.encode()] * count) + b"]}"

    return made


def small_commit() -> Callable[[], bytes]:
    return with_items("adds", json.dumps({"group": f"{PREFIX}a"}), 1)


def labelled(count: int) -> str:
    return json.dumps({"group": f"{PREFIX}a", "labels": {f"l{number}": "v" for number in range(count)}})


def created(count: int, size: int = 0) -> Callable[[], bytes]:
    """Return an Update that creates this number of tasks with data of this size."""

    def made() -> bytes:
        task = field_bytes(2, f"{PREFIX}a".encode())
        if size:
            task += field_bytes(3, field_bytes(2, b"x" * size))
        return field_bytes(1, task) * count

    return made


def predicates(count: int) -> Callable[[], bytes]:
    return lambda: field_bytes(3, b"\x01" * count)


def with_labels(count: int) -> Callable[[], bytes]:
    def made() -> bytes:
        labels = b"".join(field_bytes(4, field_bytes(1, b"%d" % number)) for number in range(count))
        return field_bytes(1, field_bytes(2, f"{PREFIX}a".encode()) + labels)

    return made


def field_bytes(number: int, content: bytes) -> bytes:
    """Encode a bytes field of a protobuf message."""
    return bytes([number << 3 | 2, *varint(len(content))]) + content


def varint(number: int) -> Iterator[int]:
    while number > 127:
        yield number & 127 | 128
        number >>= 7
    yield number


SMALL = json.dumps({"group": f"{PREFIX}a"})
BIG = json.dumps({"group": f"{PREFIX}a", "data": "x" * 6_000})
HUGE = json.dumps({"group": f"{PREFIX}huge", "data": "x" * (10 * MIB)})
KEYED = HUGE.removesuffix("}") + ', "unique": "k"}'
UNIQUE = json.dumps({"group": f"{PREFIX}huge", "unique": "k"})

READS: Sequence[Attack] = (
    Attack(name="300 adds with one key", send=rest("/update", with_items("adds", UNIQUE, 300)), is_refused=False),
    Attack(name="one id 100 times", send=of_huge_tasks("/tasks", lambda ids: {"ids": ids[:1] * 100})),
    Attack(name="six ids", send=of_huge_tasks("/tasks", lambda ids: {"ids": ids[:6]}), is_refused=False),
    Attack(name="a page of a search", send=get(f"/search?q=group:{PREFIX}huge&limit=200"), is_refused=False),
    Attack(name="a claim of 30", send=rest("/claim", with_items("depends", "1", 0, group=f"{PREFIX}huge", limit=30,
           duration=0)), is_refused=False),
    Attack(name="8 claims of 30 at once", send=at_once(8, rest("/claim", with_items("depends", "1", 0, limit=30,
           group=f"{PREFIX}huge", duration=0))), is_refused=False),
    Attack(name="24 renewals", send=of_huge_tasks("/update", lambda ids: {"clientid": CLIENT, "updates": [
           {"id": task, "keep": True} for task in ids[:24]]}), is_refused=False),
    Attack(name="a list of the group", send=get(f"/group/{PREFIX}huge?owned=1"), is_refused=False),
    Attack(name="8 lists at once", send=at_once(8, get(f"/group/{PREFIX}huge?owned=1")), is_refused=False),
    Attack(name="10 slow readers", send=slow_readers, is_refused=False),
    Attack(name="an export as CSV", send=get(f"/export?q=group:{PREFIX}huge&format=csv"), is_refused=False),
    Attack(name="8 exports at once", send=at_once(8, get(f"/export?q=group:{PREFIX}huge")), is_refused=False),
)  # fmt: skip

ATTACKS: Sequence[Attack] = (
    Attack(name="2 400 000 adds", send=rest("/update", with_items("adds", SMALL, 2_400_000))),
    Attack(name="10 001 adds", send=rest("/update", with_items("adds", SMALL, 10_001))),
    Attack(name="30 000 000 deletes", send=rest("/update", with_items("deletes", "1", 30_000_000))),
    Attack(name="6 MB of adds", send=rest("/update", with_items("adds", SMALL, 250_000))),
    Attack(name="2 000 000 groups", send=rest("/claim", with_items("groups", f'"{PREFIX}a"', 2_000_000))),
    Attack(name="400 000 groups", send=rest("/claim", with_items("groups", f'"{PREFIX}a"', 400_000))),
    Attack(name="400 000 depends", send=rest("/claim", with_items("depends", "1", 400_000, group=f"{PREFIX}a"))),
    Attack(name="5 000 000 args", send=rest("/jobs", with_items("args", "1", 5_000_000, function="f", queue="a"))),
    Attack(name="64 MiB of brackets", send=rest("/update", lambda: b"[" * (64 * MIB))),
    Attack(name="64 MiB of escapes", send=rest("/update", lambda: b'{"clientid": "' + b"\\n" * (31 * MIB) + b'"}')),
    Attack(name="64 MiB of lines", send=rest("/import", lambda: b"\n" * (64 * MIB))),
    Attack(name="a lot of lines", send=rest("/import", lambda: (SMALL.encode() + b"\n") * 2_400_000)),
    Attack(name="far too large", send=rest("/update", lambda: b" " * (256 * MIB))),
    Attack(name="a form", send=rest("/console/login", lambda: b"a=" + b"%41" * (21 * MIB))),
    Attack(name="a websocket's frames", send=socket_frames),
    Attack(name="gRPC: 3 000 000 created", send=by_grpc("Update", created(3_000_000))),
    Attack(name="gRPC: 10 001 created", send=by_grpc("Update", created(10_001))),
    Attack(name="gRPC: 60 000 000 predicates", send=by_grpc("Update", predicates(60_000_000))),
    Attack(name="gRPC: 3 000 000 labels", send=by_grpc("Update", with_labels(3_000_000))),
    Attack(name="gRPC: far too large", send=by_grpc("Update", created(4, 40 * MIB))),
    Attack(name="10 000 adds", send=rest("/update", with_items("adds", SMALL, 10_000)), is_refused=False, adds=10_000),
    Attack(name="10 000 adds of 6 kB", send=rest("/update", with_items("adds", BIG, 10_000)),
           is_refused=False, adds=10_000),
    Attack(name="10 000 adds of 64 labels", send=rest("/update", with_items("adds", labelled(64), 10_000)),
           is_refused=False, adds=10_000),
    Attack(name="6 adds of 10 MiB, four times", send=rest("/update", with_items("adds", HUGE, 6), times=4),
           is_refused=False, adds=24),
    Attack(name="an add of 10 MiB with a key", send=rest("/update", with_items("adds", KEYED, 1)),
           is_refused=False, adds=1),
    Attack(name="1 000 groups", send=rest("/claim", with_items("groups", f'"{PREFIX}none"', 1_000)),
           is_refused=False),
    Attack(name="a claim of 1 000", send=rest("/claim", with_items("depends", "1", 0, group=f"{PREFIX}a", limit=1_000)),
           is_refused=False),
    Attack(name="gRPC: 10 000 created", send=by_grpc("Update", created(10_000)), is_refused=False, adds=10_000),
    Attack(name="gRPC: 10 000 created of 6 kB", send=by_grpc("Update", created(10_000, 6_000)),
           is_refused=False, adds=10_000),
    *READS,
)  # fmt: skip
