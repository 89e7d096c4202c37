"""The gRPC client."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, Self, TypeVar

import grpc

from .errors import (
    InvalidInput,
    LeaseLost,
    MassTaskerError,
    NoAnswer,
    NotAllowed,
    NotFound,
    Refused,
    TooMuch,
    Unavailable,
    Unrecoverable,
    translated,
)
from .lease import Lease
from .masstasker_pb2 import BulkSetRequest, DebugRequest, DebugResponse, LabelSelector, QueryRequest, Task, TaskRef
from .masstasker_pb2_grpc import MassTaskerStub
from .operations import Draft, Operation, create, delete, disown, error_text, move, new_task, reown, require, update


class ServerClock:
    """The server's time, as the newest task that it gave out says; before that, this machine's.

    A lease ends by the server's clock. A machine whose own is minutes behind would renew leases into the past.
    """

    def __init__(self) -> None:
        self._ahead_s = time.time() - time.monotonic()

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.monotonic() + self._ahead_s, UTC)

    def hear(self, task: Task, own_for: timedelta) -> None:
        """A task was given out just now, to be owned for so long."""
        given_out_at = task.not_before.ToDatetime(UTC) - own_for
        self._ahead_s = given_out_at.timestamp() - time.monotonic()


__all__ = [
    "LEASE",
    "Client",
    "InvalidInput",
    "LabelSelector",
    "Lease",
    "LeaseLost",
    "MassTaskerError",
    "NoAnswer",
    "NotAllowed",
    "NotFound",
    "Operation",
    "Refused",
    "Task",
    "TaskRef",
    "TooMuch",
    "Unavailable",
    "Unrecoverable",
    "connect",
    "create",
    "delete",
    "disown",
    "move",
    "new_task",
    "reown",
    "require",
    "update",
]

ADDRESS = "127.0.0.1:50053"
NOTHING = timedelta(0)
LEASE = timedelta(seconds=30)
TIMEOUT = timedelta(seconds=30)  # Of a call that does not wait for a task.
# Data may be larger than the 4 MB that gRPC takes by itself; how large, the server says.
ANY_SIZE = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
# The proxy of the environment leads out of the machine.
NO_PROXY = (("grpc.enable_http_proxy", 0),)

Answer = TypeVar("Answer")


def connect(address: str = ADDRESS, *, token: str | None = None, certificates: bytes | None = None) -> Client:
    """A client of the server at this address; whether it is there shows with the first call.

    To this machine it speaks plainly. To others by TLS, as to this one when there are `certificates`: those that
    the server's is checked with (PEM), else the usual ones. The token is that of TASKSTORE_TOKEN by default.
    """
    token = os.environ.get("TASKSTORE_TOKEN", "") if token is None else token
    if is_this_machine(address) and not certificates:
        return Client(grpc.insecure_channel(address, (*ANY_SIZE, *NO_PROXY)), token)
    return Client(grpc.secure_channel(address, grpc.ssl_channel_credentials(certificates), ANY_SIZE), token)


def is_this_machine(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Client:
    """The calls, each with the token, and their errors as those of `errors`. Threads may share it."""

    def __init__(self, channel: grpc.Channel, token: str = "", timeout: timedelta = TIMEOUT) -> None:
        self._channel, self._timeout = channel, timeout
        self._rpc = MassTaskerStub(channel)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._clock = ServerClock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def query(self, group: str, *, own_for: timedelta = NOTHING, wait: timedelta = NOTHING) -> Task | None:
        """The task of the group that has been available longest; None when there is none, or none comes in time.

        With `own_for` it is replaced by one that nobody else gets for so long, else it is only read.
        """
        asked = QueryRequest(group=group, own_for=own_for, wait=bool(wait))
        try:
            task: Task = self._ask(self._rpc.Query, asked, wait or self._timeout).task
        except NotFound:
            return None
        except NoAnswer:
            if wait:
                return None
            raise
        if own_for:
            self._clock.hear(task, own_for)
        return task

    def do(self, *parts: Operation) -> None:
        """All of this in one Update: it happens whole or not at all.

        Raises Refused when a required task is gone or one is leased to somebody else, NotFound when a deleted one
        is gone.
        """
        draft = Draft(self._clock.now())
        for add_to in parts:
            add_to(draft)
        draft.has_happened(self._ask(self._rpc.Update, draft.request).created_ids)

    def create(self, *tasks: Task) -> None:
        self.do(create(*tasks))

    def update(self, *tasks: Task) -> None:
        self.do(update(*tasks))

    def delete(self, *tasks: Task | TaskRef) -> None:
        self.do(delete(*tasks))

    def move(self, group: str, *tasks: Task, error: str = "") -> None:
        self.do(move(group, *tasks, error=error))

    def disown(self, *tasks: Task) -> None:
        self.do(disown(*tasks))

    def reown(self, own_for: timedelta, *tasks: Task) -> None:
        self.do(reown(own_for, *tasks))

    def commit_or_move(self, task: Task, problem: BaseException | None = None, error_group: str = "") -> None:
        """Delete the task when its work went well; else keep it, and raise the problem again.

        With an Unrecoverable and a group for such tasks: move it there with the text of the error, and raise nothing.
        """
        if problem is None:
            self.delete(task)
        elif error_group and isinstance(problem, Unrecoverable):
            self.move(error_group, task, error=error_text(problem))
        else:
            # Others need not wait for the end of the lease. If this fails, they do.
            with suppress(MassTaskerError):
                self.disown(task)
            raise problem

    @contextmanager
    def lease(self, task: Task, own_for: timedelta = LEASE, error_group: str = "") -> Iterator[Lease]:
        """Renew the lease of an owned task while the block runs, and commit or keep it at the end of the block.

        Without an exception the task is deleted, unless the block has committed it. With one: as commit_or_move.
        Raises LeaseLost at the latest at the end, if the lease was lost.
        """
        lease = Lease(self, task, own_for)
        lease.begin()
        try:
            yield lease
        except BaseException as problem:
            lease.give_up(problem, error_group)
        else:
            lease.finish()
        finally:
            lease.end()

    def bulk_set(self, prototype: Task, *refs: TaskRef) -> int:
        """Give all tasks that the refs match what the prototype has of group, not_before, error and labels.

        Returns how many. It needs the right to operate.
        """
        answer = self._ask(self._rpc.BulkSet, BulkSetRequest(ref=refs, prototype=prototype))
        return int(answer.num_updated)

    def debug(self, group: str = "", limit: int = 0) -> DebugResponse:
        """The tasks of a group, or of all, up to the limit if there is one, and how many there are."""
        answer: DebugResponse = self._ask(self._rpc.Debug, DebugRequest(group=group, limit=limit))
        return answer

    def _ask(self, call: Callable[..., Answer], asked: Any, timeout: timedelta | None = None) -> Answer:
        limit_s = (timeout or self._timeout).total_seconds()
        try:
            return call(asked, timeout=limit_s, metadata=self._metadata)
        except grpc.RpcError as problem:
            raise translated(problem) from problem
