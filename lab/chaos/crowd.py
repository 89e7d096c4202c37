"""Clients that open connections and hardly use them: slow to send, never reading, or waiting for work."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread

TRICKLE_S = 1.0  # Between two bits of what is sent slowly.
READ_AHEAD_BYTES = 4_096  # What the system takes for a client that reads nothing: as little as it can.
GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    begin: bytes  # What each sends at once,
    trickle: bytes = b""  # and from then on again and again. Nobody reads anything.


@dataclass
class Crowd:
    """`dropped_s`: for each of a kind that the server has cut off, how long it was there."""

    dropped_s: dict[str, list[float]] = field(default_factory=dict)
    _members: dict[int, tuple[Kind, socket.socket, float]] = field(default_factory=dict)
    _watch: select.poll = field(default_factory=select.poll)

    def left(self, kinds: Sequence[Kind]) -> int:
        """How many of these have not been cut off."""
        return sum(kind in kinds for kind, *_ in list(self._members.values()))

    def join(self, kind: Kind, connection: socket.socket) -> None:
        connection.sendall(kind.begin)
        self._members[connection.fileno()] = kind, connection, time.monotonic()
        self._watch.register(connection, select.POLLRDHUP)

    def look(self) -> None:
        """Wait a little for somebody to be cut off."""
        for number, event in self._watch.poll(TRICKLE_S * 1_000):
            if event & GONE:
                self._watch.unregister(number)
                kind, _, since_s = self._members.pop(number)
                self.dropped_s.setdefault(kind.name, []).append(time.monotonic() - since_s)

    def trickle(self) -> None:
        for kind, connection, _ in list(self._members.values()):
            with suppress(OSError):  # It has been cut off, which the next look tells.
                connection.send(kind.trickle)


@contextmanager
def crowd(port: int, kinds: Mapping[Kind, int]) -> Iterator[Crowd]:
    """So many of each kind, on a server of this machine, until the block ends."""
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
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_AHEAD_BYTES)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", port))
        yield connection


def head(method: str, path: str, token: str, body: object = None) -> bytes:
    """A request; with a body, the whole of it."""
    text = "" if body is None else json.dumps(body)
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {len(text)}\r\n\r\n{text}"
    ).encode()
