"""What the worker, its fork server and the processes of the jobs tell each other: JSON objects over sockets."""

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
    """A job that a process is to run."""

    key: int  # Of this run, in this worker.
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
    """What came of it. Times are milliseconds since the Epoch."""

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

    runner: Sequence[str]  # What finds functions: `module:callable`, and what it is called with.
    processes: int = 1  # At the same time. Further jobs wait for their turn.
    jobs_per_process: int = 1
    spawn: bool = False  # Each process is a fresh interpreter, not a copy of the server.
    kill_after_ms: int = 5_000  # How long after SIGTERM a job is ended by SIGKILL.


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def tree_of(value: Assignment | RunOutcome | Setup) -> dict[str, Any]:
    return asdict(value)


def packed(message: Any) -> bytes:
    """JSON behind its length. ASCII: text that is no Unicode comes through, too."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return LENGTH.pack(len(body)) + body


def read(stream: BinaryIO) -> Any | None:
    """The next message; None when nobody will send one any more. Waits."""
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
    """One end of a socket, for somebody who must not wait."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.is_open = True  # As far as we know: the other end may still send.
        self._unread = bytearray()
        self._unsent = bytearray()

    @property
    def has_more_to_send(self) -> bool:
        return bool(self._unsent)

    def send(self, message: Any) -> None:
        self._unsent += packed(message)
        self.flush()

    def flush(self) -> None:
        """Send what there is room for. What nobody reads any more is dropped."""
        try:
            while self._unsent:
                del self._unsent[: self.end.send(self._unsent[:AT_ONCE], socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()

    def receive(self) -> Iterator[Any]:
        """The messages that have come so far."""
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
