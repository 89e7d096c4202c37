"""The gRPC client, and the leases of its tasks."""

from __future__ import annotations

import os
import threading
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
from .masstasker_pb2 import BulkSetRequest, DebugRequest, DebugResponse, LabelSelector, QueryRequest, Task, TaskRef
from .masstasker_pb2_grpc import MassTaskerStub
from .operations import (
    Draft,
    Operation,
    copy_of,
    create,
    delete,
    delete_unless_replaced,
    disown,
    error_text,
    move,
    new_task,
    reown,
    require,
    update,
)

RENEWALS = 3  # Per lease, so that one may fail or two may be late.


class ServerClock:
    """The server's time, learned from the last claimed task; before that, this machine's.

    Leases end by the server's clock. A machine whose clock is minutes behind would renew leases into the past.
    """

    def __init__(self) -> None:
        self._ahead_s = time.time() - time.monotonic()

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.monotonic() + self._ahead_s, UTC)

    def learn(self, task: Task, own_for: timedelta) -> None:
        """Learn the time from a task that was just claimed for that long."""
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
# Leave the limit to the server instead of gRPC's 4 MB.
ANY_SIZE = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
# A proxy from the environment can't reach this machine's loopback address.
NO_PROXY = (("grpc.enable_http_proxy", 0),)

Answer = TypeVar("Answer")


def connect(address: str = ADDRESS, *, token: str | None = None, certificates: bytes | None = None) -> Client:
    """Return a client of the server at `host:port`. It connects with the first call.

    `token`: by default TASKSTORE_TOKEN. `certificates`: the root certificates (PEM) that verify the server's, by
    default those of gRPC. The connection uses TLS, except without `certificates` to this machine.
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
    """A client of the gRPC API. Threads may share it. Methods raise the errors of `taskstore.masstasker.errors`."""

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
        """Return the task of the group that has been available longest; None if there is none.

        `own_for`: claim the task for this long; without it the task is only read. `wait`: how long to wait for a task.
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
            self._clock.learn(task, own_for)
        return task

    def do(self, *parts: Operation) -> None:
        """Apply all operations in one Update, or none. The tasks passed to them get their new ids.

        Raises Refused if a required task is gone or a task is leased to another client; NotFound if a task to delete is
        gone.
        """
        draft = Draft(self._clock.now())
        for add_to in parts:
            add_to(draft)
        draft.has_happened(self._ask(self._rpc.Update, draft.request).created_ids)

    def create(self, *tasks: Task) -> None:
        """Add tasks."""
        self.do(create(*tasks))

    def update(self, *tasks: Task) -> None:
        """Replace tasks with their changed versions. Raises as `do`."""
        self.do(update(*tasks))

    def delete(self, *tasks: Task | TaskRef) -> None:
        """Delete tasks. Raises as `do`."""
        self.do(delete(*tasks))

    def move(self, group: str, *tasks: Task, error: str = "") -> None:
        """Move tasks to another group, where they are available at once. Raises as `do`."""
        self.do(move(group, *tasks, error=error))

    def disown(self, *tasks: Task) -> None:
        """Give owned tasks back, so that they are available at once. Raises as `do`."""
        self.do(disown(*tasks))

    def reown(self, own_for: timedelta, *tasks: Task) -> None:
        """Own tasks for this long from now. Raises as `do`."""
        self.do(reown(own_for, *tasks))

    def commit_or_move(self, task: Task, problem: BaseException | None = None, error_group: str = "") -> None:
        """Delete the task if `problem` is None; otherwise give it back and raise the problem again.

        An Unrecoverable problem moves it to `error_group` instead, if given, with the text of the error.
        """
        if problem is None:
            self.delete(task)
        elif error_group and isinstance(problem, Unrecoverable):
            self.move(error_group, task, error=error_text(problem))
        else:
            # Otherwise the task becomes available when its lease ends.
            with suppress(MassTaskerError):
                self.disown(task)
            raise problem

    @contextmanager
    def lease(self, task: Task, own_for: timedelta = LEASE, error_group: str = "") -> Iterator[Lease]:
        """Renew the lease of an owned task while the block runs.

        At the end of the block the task is deleted, unless the block committed it; after an exception it is handled as
        by `commit_or_move`. Raises LeaseLost, at the latest at the end of the block, if the lease was lost.
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
        """Set group, not_before, error and labels of all matching tasks to those of the prototype, where it has them.

        Returns the number of changed tasks. Needs a token with the scope `operate`.
        """
        answer = self._ask(self._rpc.BulkSet, BulkSetRequest(ref=refs, prototype=prototype))
        return int(answer.num_updated)

    def debug(self, group: str = "", limit: int = 0) -> DebugResponse:
        """Return the tasks of a group, by default of all groups, up to `limit` (0: no limit), and their number."""
        answer: DebugResponse = self._ask(self._rpc.Debug, DebugRequest(group=group, limit=limit))
        return answer

    def _ask(self, call: Callable[..., Answer], asked: Any, timeout: timedelta | None = None) -> Answer:
        limit_s = (timeout or self._timeout).total_seconds()
        try:
            return call(asked, timeout=limit_s, metadata=self._metadata)
        except grpc.RpcError as problem:
            raise translated(problem) from problem


class Lease:
    """The lease of a task. Call `commit` with the results, and `check` from time to time during long work."""

    def __init__(self, store: Client, task: Task, own_for: timedelta) -> None:
        self._store, self._own_for = store, own_for
        self._task = task  # The caller's task, which gets each new id.
        self._owned = copy_of(task)  # The original content, because renewals must not publish unfinished changes.
        self._turn = threading.Lock()  # The id changes with a renewal, so don't renew during a commit.
        self._over = threading.Event()
        self._lost: MassTaskerError | None = None
        self._is_committed = False
        self._renewing = threading.Thread(target=self._renew_until_over, name="lease", daemon=True)

    def check(self) -> None:
        """Raise LeaseLost if another client may have the task, so that no result can be committed."""
        if self._lost:
            raise LeaseLost(f"the lease is lost: {self._lost}") from self._lost

    def commit(self, *operations: Operation) -> None:
        """Apply the operations and delete the task, unless they replace it, in one Update. Ends the lease.

        Raises LeaseLost; other errors of the Update leave the lease running.
        """
        with self._turn:
            self.check()
            try:
                self._store.do(*operations, delete_unless_replaced(self._task))
            except NotFound:
                self._renew()  # Find out whether the task itself is gone, or another one that the operations name.
                self.check()
                raise
            self._is_committed = True
            self._over.set()

    def begin(self) -> None:
        self._renewing.start()

    def end(self) -> None:
        """Stop renewing, after a renewal under way."""
        with self._turn:
            self._over.set()
        self._renewing.join()

    def finish(self) -> None:
        """Commit after successful work, unless it has committed."""
        if not self._is_committed:
            self.commit()

    def give_up(self, problem: BaseException, error_group: str) -> None:
        """After failed work, move the task to the error group, or give it back and raise the problem again."""
        self.end()
        if self._lost or self._is_committed:
            raise problem
        self._store.commit_or_move(self._owned, problem, error_group)

    def _renew_until_over(self) -> None:
        while not self._over.wait(self._own_for.total_seconds() / RENEWALS):
            with self._turn:
                if not self._over.is_set():
                    self._renew()

    def _renew(self) -> None:
        try:
            self._store.reown(self._own_for, self._owned)
        except (Unavailable, TooMuch):
            return  # The lease still runs, and the next attempt may succeed.
        except MassTaskerError as problem:
            self._lost = problem
            self._over.set()
            return
        self._task.id = self._owned.id
        self._task.not_before.CopyFrom(self._owned.not_before)
