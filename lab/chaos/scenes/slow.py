"""Clients that send slowly, never read, or wait, beside clients that work."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread

from lab.testing import CannotTry
from lab.testing.processes import memory_mb

from ..client import HELD
from ..history import History
from ..outcome import Figure, SceneResult, outcome_of, p99
from ..processes import StoreServer
from ..stage import Stage

WORKER = 1_001
TASKS, TASK_BYTES = 300, 10_000  # Much more than the system's send buffer.
LONGER = 2.0  # The permitted factor by which others are slowed down.
MORE_MB = 150.0
LATE_S = 60.0  # After the run, a connection still open counts as never closed.
LOOK_EVERY_S = 0.5
WAIT_MS = 60_000

TRICKLE_S = 1.0  # Between two pieces that are sent slowly.
RECEIVE_BYTES = 4_096  # The smallest receive buffer, so that a client that does not read blocks the server soon.
GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    begin: bytes  # Sent at once.
    trickle: bytes = b""  # Sent every second after that. No client reads anything.


@dataclass
class Crowd:
    """Open connections. `dropped_s`: by kind, how long the connections lived that the server has closed."""

    dropped_s: dict[str, list[float]] = field(default_factory=dict)
    _members: dict[int, tuple[Kind, socket.socket, float]] = field(default_factory=dict)
    _watch: select.poll = field(default_factory=select.poll)

    def left(self, kinds: Sequence[Kind]) -> int:
        """Return the number of open connections of these kinds."""
        return sum(kind in kinds for kind, *_ in list(self._members.values()))

    def join(self, kind: Kind, connection: socket.socket) -> None:
        connection.sendall(kind.begin)
        self._members[connection.fileno()] = kind, connection, time.monotonic()
        self._watch.register(connection, select.POLLRDHUP)

    def look(self) -> None:
        """Wait up to TRICKLE_S for closed connections."""
        for number, event in self._watch.poll(TRICKLE_S * 1_000):
            if event & GONE:
                self._watch.unregister(number)
                kind, _, since_s = self._members.pop(number)
                self.dropped_s.setdefault(kind.name, []).append(time.monotonic() - since_s)

    def trickle(self) -> None:
        for kind, connection, _ in list(self._members.values()):
            with suppress(OSError):  # It was closed, which the next look notices.
                connection.send(kind.trickle)


@contextmanager
def crowd(port: int, kinds: Mapping[Kind, int]) -> Iterator[Crowd]:
    """Keep this number of connections of each kind open until the block ends."""
    found, must_end = Crowd(), Event()
    keeping = Thread(target=keep, args=[found, must_end])
    with ExitStack() as stack:
        for kind, count in kinds.items():
            for _ in range(count):
                found.join(kind, stack.enter_context(connected(port)))
        keeping.start()
        try:
            yield found
        finally:
            must_end.set()
            keeping.join()


def keep(found: Crowd, must_end: Event) -> None:
    trickled_s = time.monotonic()
    while not must_end.is_set():
        found.look()
        if time.monotonic() > trickled_s + TRICKLE_S:
            found.trickle()
            trickled_s = time.monotonic()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", port))
        yield connection


def head(method: str, path: str, token: str, body: object = None) -> bytes:
    """Return a whole HTTP request."""
    text = "" if body is None else json.dumps(body)
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {len(text)}\r\n\r\n{text}"
    ).encode()


HEADS = Kind(name="slow heads", begin=b"GET /groups HTTP/1.1\r\nHost: localhost\r\n", trickle=b"X-More: 1\r\n")
BODIES = Kind(
    name="slow bodies",
    begin=b"POST /update HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n",
    trickle=b" ",
)


def slow_clients(stage: Stage) -> SceneResult:
    """Measure the effect on others and the memory, and check that misbehaving clients are disconnected."""
    server = stage.server(TASKSTORE_SLOW_CLIENT_SECONDS=str(stage.pace.slow_client_s))
    fill(stage, server)
    readers = Kind(name="never reading", begin=head("GET", f"/group/{HELD}?owned=yes", stage.token))
    asked = {"clientid": WORKER, "group": "nothing", "wait": WAIT_MS}
    waits = Kind(name="waiting", begin=head("POST", "/claim", stage.token, asked))
    slow = {HEADS: 200, BODIES: 50, readers: 200}
    counts = {kind: max(1, round(count * stage.pace.crowd)) for kind, count in {**slow, waits: 500}.items()}
    with stage.load([server]):
        time.sleep(stage.pace.seconds / 2)
        quiet_s, before_mb = time.monotonic(), memory_mb(server.pid)
        with crowd(server.port, counts) as there:
            most_mb = max(memory_for(server.pid, stage.pace.seconds))
            ended_s = time.monotonic()
            left = left_after(there, list(slow), LATE_S)
    history = stage.history(server)
    problems = [f"{left} of the slow clients were never cut off"] if left else []
    # A wait that ended was answered, and its idle connection may be closed.
    if cut_off := [stayed_s for stayed_s in there.dropped_s.get(waits.name, []) if stayed_s < WAIT_MS / 1_000]:
        problems.append(f"{len(cut_off)} of those who waited for a task were cut off")
    return outcome_of(
        history,
        faults=sum(counts.values()),
        problems=problems,
        figures=[
            Figure(name="p99 of others as a multiple of that before", value=slower(history, quiet_s, ended_s),
                   limit=LONGER, unit=""),
            Figure(name="more memory", value=most_mb - before_mb, limit=MORE_MB, unit="MB"),
            Figure(name="cut off within", value=max(longest(there, slow)), limit=stage.pace.seconds),
        ],
    )  # fmt: skip


def fill(stage: Stage, server: StoreServer) -> None:
    """Add the tasks that the clients that never read request."""
    one = stage.worker(server, WORKER)
    with closing(one.notes):
        if not one.committed(adds=[{"group": HELD, "data": f"{one.unique():{TASK_BYTES}}"} for _ in range(TASKS)]):
            raise CannotTry("the tasks could not be added")


def memory_for(pid: int, seconds: float) -> Iterator[float]:
    """Yield the memory of the server's processes in MB during this time."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        yield memory_mb(pid)
        time.sleep(LOOK_EVERY_S)


def left_after(there: Crowd, kinds: Sequence[Kind], seconds: float) -> int:
    """Wait for connections of these kinds to be closed, and return how many remain."""
    until_s = time.monotonic() + seconds
    while there.left(kinds) and time.monotonic() < until_s:
        time.sleep(LOOK_EVERY_S)
    return there.left(kinds)


def longest(there: Crowd, kinds: Iterable[Kind]) -> Iterator[float]:
    yield 0.0
    for kind in kinds:
        yield from there.dropped_s.get(kind.name, [])


def slower(history: History, quiet_s: float, ended_s: float) -> float:
    """Return the p99 of changes between `quiet_s` and `ended_s` as a multiple of that before."""
    changes = [event for event in history.requests if event.is_change and event.client != WORKER]
    before = [event.received_s - event.sent_s for event in changes if event.received_s < quiet_s]
    meanwhile = [event.received_s - event.sent_s for event in changes if quiet_s < event.sent_s < ended_s]
    return p99(meanwhile) / p99(before)
