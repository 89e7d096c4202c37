"""The messages between a worker, its fork server and the processes of jobs: JSON objects over sockets."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO, Self

from ..types.job_record import How, JobError

LENGTH = struct.Struct(">I")
AT_ONCE = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A job to run, as sent to a process."""

    key: int  # Identifies this run within the worker.
    function: str
    job_id: int = 0
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1
    is_last: bool = False
    worker: str = ""
    timeout_ms: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The result of a run. Times are milliseconds since the Epoch."""

    key: int
    how: How
    pid: int = 0
    started: int = 0
    ended: int = 0
    result: Any = None
    error: JobError | None = None
    log: str = ""

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Self:
        error = tree.get("error")
        return cls(**{**tree, "how": How(tree["how"]), "error": JobError(**error) if error else None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a fork server runs its jobs."""

    runner: Sequence[str]  # `module:callable` and its arguments; it returns the lookup of functions.
    processes: int = 1  # At the same time; further jobs are queued.
    jobs_per_process: int = 1
    spawn: bool = False  # Start a new interpreter for each process instead of forking the server.
    kill_after_ms: int = 5_000  # The time from SIGTERM to SIGKILL.


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def tree_of(value: Assignment | RunOutcome | Setup) -> dict[str, Any]:
    return asdict(value)


def packed(message: Any) -> bytes:
    """Encode a message as its length followed by JSON. ASCII, because text may contain lone surrogates."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return LENGTH.pack(len(body)) + body


def read(stream: BinaryIO) -> Any | None:
    """Wait for the next message and return it; None once the other end is closed."""
    try:
        head = stream.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        [length] = LENGTH.unpack(head)
        body = stream.read(length)
    except OSError:
        return None
    return json.loads(body) if len(body) == length else None


class Channel:
    """One end of a socket, read and written without blocking."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.is_open = True  # Until the other end is found closed.
        self._unread = bytearray()
        self._unsent = bytearray()

    @property
    def has_more_to_send(self) -> bool:
        return bool(self._unsent)

    def send(self, message: Any) -> None:
        self._unsent += packed(message)
        self.flush()

    def flush(self) -> None:
        """Send as much as the socket takes. Drops everything once the other end is closed."""
        try:
            while self._unsent:
                del self._unsent[: self.end.send(self._unsent[:AT_ONCE], socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()

    def receive(self) -> Iterator[Any]:
        """Yield the messages that have arrived."""
        with suppress(BlockingIOError):
            while self.is_open:
                try:
                    some = self.end.recv(AT_ONCE, socket.MSG_DONTWAIT)
                except ConnectionError:
                    some = b""
                self._unread += some
                self.is_open = bool(some)
        while len(self._unread) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._unread)[0]
            if len(self._unread) < end:
                return
            body = bytes(self._unread[LENGTH.size : end])
            del self._unread[:end]
            yield json.loads(body)
