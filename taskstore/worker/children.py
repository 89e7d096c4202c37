"""The processes of a worker or a server: functions, jobs, shell commands, and the helper for large requests.

    owner ── fork server ── runner ── a process that works, and all that it starts

The fork server is a new interpreter, without the threads and connections of its owner. It imports what the work needs
and forks a runner for each piece of work at a time. A runner has one thread. It starts a process for the work, keeps
what it writes, enforces its limits, adopts and ends what it leaves behind, and ends when its owner does. Where each
process does one work, the next is forked ahead.

The owner decides when work stops: a service manager signals all processes, and only the owner knows what follows.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple

from ..errors import TaskStoreError
from ..types.command_record import Output
from . import process_tree as tree
from .outputs import AT_ONCE

logger = logging.getLogger(__name__)

LENGTH = struct.Struct("<Q")
START_S = 60.0  # Includes the imports of the program.
# How long the end of a process without work may take, that of all runners, and that of the fork server.
RETIRE_S, LEAVE_S, END_S = 3.0, 4.0, 5.0
REST_S = 3.0  # How long to write the rest of a copy at the end.
LOOK_S = 1.0
EXIT_S = 60.0  # For the threads and exit handlers of work without a time limit.

STOPS = (signal.SIGTERM, signal.SIGINT)
# Raises Stopped in a process that works. Not SIGTERM, which may come from others.
INTERRUPT = getattr(signal, "SIGRTMIN", signal.SIGUSR2)


class NotPrepared(TaskStoreError):
    """The processes of a worker can't be started: for example, a module can't be imported. The message says why."""

    code = "not_prepared"


class Stopped(BaseException):
    """Raised in work that must end: it timed out, its lease is lost, or its worker stops. Don't catch it."""


class Shell(NamedTuple):
    """A command line for a shell."""

    program: str
    line: str | bytes
    env: Mapping[str, str]


class Work(NamedTuple):
    """What a runner is to do: a command line, or what the functions of a Python process are told."""

    shell: Shell | None = None
    number: int = 0  # Of this runner.
    messages: int = 0  # How many follow for the Python process.
    limit_s: float | None = None
    memory_bytes: int | None = None  # With all processes that it starts.
    kill_after_s: float = 0  # After an interrupt. 0: kill at once.
    linger_s: float = 0  # For the processes that it leaves behind.
    head_bytes: int = 0  # Kept from the beginning of each output.
    tail_bytes: int = 2**16  # Kept from its end.
    copied_after: bytes | None = None  # Begins each line that is copied to standard error. None: none is copied.


class Why(StrEnum):
    """Why work was ended."""

    TIME = "time"
    MEMORY = "memory"
    STOPPED = "stopped"  # By the owner.
    SIGNAL = "signal"  # Somebody sent SIGTERM or SIGINT to its process alone.
    NOT_STARTED = "not started"
    NOT_BEGUN = "not begun"  # The owner wanted it back before it was started.


class Stop(NamedTuple):
    """An order to end work, or to give it back if it has not been started."""

    number: int
    only_waiting: bool


NO_OUTPUT = Output()


class News(NamedTuple):
    """What work has written so far, and its last progress."""

    pid: int
    out: Output
    err: Output
    progress: tuple[float, str] | None


class Over(NamedTuple):
    """The end of work. `answer` and `text` are empty if its process did not say or leave any."""

    number: int = 0
    answer: bytes = b""
    pid: int = 0
    code: int = 0  # As in `subprocess`. 0 if the process is kept for further work.
    took_s: float = 0
    why: Why | None = None
    text: str = ""  # Why it was not started.
    was_signalled: bool = False  # SIGTERM or SIGINT was sent to all processes meanwhile: no failure of the work.
    outputs: Sequence[Output] = ()  # Empty if it has written nothing.
    left: int = 0  # How many of its processes outlived it and were killed.
    others: Sequence[int] = ()  # Its processes that belong to other users and can't be killed. The runner ends.

    @property
    def out(self) -> Output:
        return self.outputs[0] if self.outputs else NO_OUTPUT

    @property
    def err(self) -> Output:
        return self.outputs[1] if len(self.outputs) > 1 else NO_OUTPUT


class Gone:
    """The runner has ended, and with it what it ran."""


class Setup(NamedTuple):
    """What a fork server is told."""

    prepare: bytes | None
    spawn: bool
    captures: bool
    cwd: str | None


Event = News | Over | Gone | bytes  # bytes: a message of a Python process.
Serve = Callable[["Desk"], None]  # Does the work that arrives in a Python process.
Prepare = Callable[[], tuple[Serve, Any]]  # Returns also what the owner is told of the functions.


class Channel:
    """One end of a socket for messages.

    Only `ready`, `wait` and `drain` wait, for as long as they are told. Two processes that send much to each other
    would otherwise both wait until the other one reads.
    """

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.is_open = True  # Until the other end is found closed.
        self.unsent = 0  # Bytes. Whoever waits for the channel sends them.
        self._unread = bytearray()
        self._read: deque[bytes] = deque()
        self._queue: deque[memoryview] = deque()
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self.end.fileno()

    @property
    def awaited(self) -> int:
        """What to poll for."""
        return select.POLLIN | (select.POLLOUT if self.unsent else 0)

    def send(self, *messages: bytes) -> None:
        """Send messages together, as far as the other end has room. A closed channel is noticed by reading."""
        small = b""  # Sent together with what follows. Large messages are not copied.
        with self._sending:
            for message in messages:
                small += LENGTH.pack(len(message))
                if len(message) < AT_ONCE:
                    small += message
                else:
                    self._queue += [memoryview(small), memoryview(message)]
                    small = b""
            if small:
                self._queue.append(memoryview(small))
            self._flush()

    def flush(self) -> None:
        """Send what there is room for."""
        with self._sending:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._queue:
                sent = self.end.send(self._queue[0], socket.MSG_DONTWAIT)
                self._queue[0] = self._queue[0][sent:]
                if not self._queue[0]:
                    self._queue.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._queue.clear()
        self.unsent = sum(map(len, self._queue))

    def drain(self, patience_s: float = math.inf) -> None:
        """Wait until everything is sent. It is not read meanwhile."""
        if not self.unsent:
            return
        until = time.monotonic() + patience_s
        poller = select.poll()
        poller.register(self, select.POLLOUT)
        while self.unsent and (left_s := until - time.monotonic()) > 0:
            poller.poll(min(LOOK_S, left_s) * 1_000)
            self.flush()

    def ready(self, patience_s: float) -> bool:
        """Wait until there is something to read, also the end, and send what is left meanwhile."""
        until = time.monotonic() + patience_s
        poller = select.poll()
        # Again and again: when another thread closes the channel just before, its number may be that of another file.
        while self.is_open and not self._read:
            with suppress(ValueError):  # Closed since the line above.
                poller.register(self, self.awaited)
            left_s = max(0.0, until - time.monotonic())
            found = poller.poll(min(LOOK_S, left_s) * 1_000)
            if self.unsent:
                self.flush()
            if any(events & ~select.POLLOUT for _, events in found):
                return True
            if left_s == 0:
                return False
        return True

    def receive(self) -> list[bytes]:
        """Return the messages that have arrived."""
        self._take()
        found = [*self._read]
        self._read.clear()
        return found

    def wait(self, patience_s: float = math.inf) -> bytes | None:
        """Wait for the next message. None: the other end is closed, or it takes too long."""
        until = time.monotonic() + patience_s
        while self.is_open and not self._read and self.ready(until - time.monotonic()):
            self._take()
        return self._read.popleft() if self._read else None

    def close(self) -> None:
        self.is_open = False
        with suppress(OSError):
            self.end.shutdown(socket.SHUT_RDWR)
        self.end.close()

    def _take(self) -> None:
        while self.is_open:
            try:
                some = self.end.recv(AT_ONCE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                some = b""
            self.is_open = bool(some)
            self._unread += some
            if len(some) < AT_ONCE:
                break
        at = 0
        with memoryview(self._unread) as unread:
            while len(unread) >= at + LENGTH.size:
                start = at + LENGTH.size
                end = start + LENGTH.unpack_from(unread, at)[0]
                if len(unread) < end:
                    break
                self._read.append(bytes(unread[start:end]))
                at = end
        del self._unread[:at]


SAYS, REPORTS, ANSWERS, LEAVES = b"s", b"r", b"a", b"l"  # What the messages of a Python process begin with.


class Desk:
    """Where the functions of a Python process get their work and answer it."""

    def __init__(self, channel: Channel, note: int) -> None:
        self._channel, self.note = channel, note

    def next(self) -> bytes | None:
        """Wait for the next message of the owner. None: there is none, and the process is to end."""
        return self._channel.wait()

    def say(self, message: bytes) -> None:
        """Send a message to the owner while the work goes on."""
        self._send(SAYS + message)

    def report(self, done: float, text: str) -> None:
        """Report progress. The owner gets the last report once a second, with other news."""
        self._send(REPORTS + pickle.dumps((done, text)))

    def answer(self, message: bytes, *, is_last: bool = False) -> None:
        """End the work with an answer. After the last one the process ends, and only then the work is over."""
        self._send((LEAVES if is_last else ANSWERS) + message)

    def _send(self, message: bytes) -> None:
        self._channel.send(message)
        self._channel.drain()  # The runner reads, or ends this process.

    def keep(self) -> list[str]:
        """Keep the descriptors open in a new interpreter, and return them as arguments for it."""
        for descriptor in (self._channel.fileno(), self.note):
            os.set_inheritable(descriptor, True)
        return [str(self._channel.fileno()), str(self.note)]


# ---- The owner


class Children:
    """A fork server and its runners.

    `prepare` is called once where the work runs, by default in the fork server. It returns the function that serves,
    and what `about` is to be here. None: there are only shells. `spawn`: start a new interpreter for each process
    instead of forking the fork server. `captures`: whether to keep the outputs of Python processes. `cwd`: the
    directory of the shells, which may be removed and come back.
    """

    def __init__(
        self, prepare: Prepare | None = None, *, spawn: bool = False, captures: bool = True, cwd: str | None = None
    ) -> None:
        self._setup = Setup(None if prepare is None else pickled(prepare), spawn, captures, cwd)
        self._turn = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._children: set[Child] = set()
        self.about: Any = None

    def start(self) -> None:
        """Start the fork server. Raises NotPrepared."""
        with self._turn:
            if self._start() > 1 and not self._setup.spawn:
                logger.warning("the modules start threads when they are imported: each process is a new interpreter")
                self._setup = self._setup._replace(spawn=True)
                self._start()

    def new(self) -> Child:
        """Start a runner, and the fork server if there is none."""
        with self._turn:
            if self._server is None or self._server.poll() is not None:
                self._start()
            ours, theirs = socket.socketpair()
            with theirs, suppress(OSError):  # Otherwise the child is found to be gone.
                socket.send_fds(self._control.end, [b"r"], [theirs.fileno()])
            child = Child(Channel(ours))
            self._children.add(child)
        return child

    def discard(self, child: Child) -> None:
        """End a runner with everything that it runs."""
        with self._turn:
            self._children.discard(child)
        child.channel.close()

    def end(self) -> None:
        """End all processes and wait for them."""
        with self._turn:
            children, self._children = self._children, set()
            for child in children:
                child.channel.close()
            self._end_server()

    def _start(self) -> int:
        """Return how many threads the fork server has after all imports."""
        self._end_server()
        ours, theirs = socket.socketpair()
        words = [*interpreter(f"{__package__}.runner", "main"), str(theirs.fileno())]
        with theirs:
            # A new session, so that Ctrl-C reaches only the owner.
            self._server = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
            )
        ours.setblocking(False)  # A fork server that is stopped takes nothing.
        self._control = Channel(ours)
        self._control.send(pickle.dumps(self._setup))
        said = self._control.wait(START_S)
        answer = pickle.loads(said) if said else "the process that starts the others has ended or does not respond"  # noqa: S301
        if isinstance(answer, str):
            self._end_server()
            raise NotPrepared(answer)
        threads: int
        threads, self.about = answer
        return threads

    def _end_server(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        self._control.close()
        try:
            server.wait(END_S + REST_S)
        except subprocess.TimeoutExpired:  # For example, because it is stopped: then nobody else ends the others.
            for pid in [server.pid, *tree.descendants(server.pid)]:
                tree.send(pid, signal.SIGKILL)
            server.wait()


class Child:
    """A runner, as its owner sees it. Any thread may send to it; the one that waits for it sends what is left."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._numbers = itertools.count(1)

    def run(self, work: Work, *messages: bytes) -> int:
        """Hand over work, with messages for the Python process. It is done after the last one. Returns its number."""
        return self.run_all([(work, messages)])[0]

    def run_all(self, works: Iterable[tuple[Work, Sequence[bytes]]]) -> list[int]:
        """Hand over works, with the messages of each, that are done one after the other. Returns their numbers."""
        numbers: list[int] = []
        sent: list[bytes] = []
        for work, messages in works:
            numbers.append(next(self._numbers))
            sent += (pickle.dumps(work._replace(number=numbers[-1], messages=len(messages))), *messages)
        self.channel.send(*sent)
        return numbers

    def tell(self, message: bytes) -> None:
        """Send a message to the Python process that works."""
        self.channel.send(pickle.dumps(message))

    def stop(self, number: int, *, only_waiting: bool = False) -> None:
        """End work, by default also if it has been started. Its end is received like any other."""
        self.channel.send(pickle.dumps(Stop(number, only_waiting)))

    def wait(self, patience_s: float | None = None) -> list[Event]:
        """Return what it says within that time, for a thread that has only this one."""
        return self.events() if self.channel.ready(math.inf if patience_s is None else patience_s) else []

    def events(self) -> list[Event]:
        """Return what it has said."""
        found: list[Event] = [pickle.loads(message) for message in self.channel.receive()]  # noqa: S301 - of a runner.
        return found if self.channel.is_open else [*found, Gone()]


def pickled(functions: object) -> bytes:
    """Raises NotPrepared for a function that belongs to no module."""
    try:
        return pickle.dumps(functions)
    except (AttributeError, TypeError, pickle.PickleError) as problem:
        raise NotPrepared(f"functions for processes must belong to a module: {problem}") from problem


def interpreter(module: str, function: str) -> list[str]:
    """Return the command of a new Python with this one's module path that calls a function with the arguments."""
    start = f"import sys; sys.path[:] = {sys.path!r}; from {module} import {function}; {function}(*sys.argv[1:])"
    return [sys.executable, "-c", start]


def cause_of_death(code: int) -> str:
    """Describe how a process ended, given its exit code as in `subprocess`."""
    if code >= 0:
        return f"its process ended with code {code} before the function returned"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ": by a person, or by the system when memory ran out" if -code == signal.SIGKILL else ""
    return f"its process was ended by {name}{hint}"
