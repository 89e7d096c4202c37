"""The worker's side of its fork server."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .fork_server import interpreter
from .messages import Assignment, Channel, Setup, packed, tree_of

PATIENCE_S = 5.0

Message = dict[str, Any]


class NotPrepared(Exception):
    """The processes of the jobs can't be started: for example, a module can't be imported or contains no jobs."""


class ForkServerLink:
    """A running fork server. It ends with the thread that created it.

    Any thread may send to it; one thread receives. Raises NotPrepared if it can't run jobs.
    """

    def __init__(self, setup: Setup) -> None:
        ours, theirs = socket.socketpair()
        words = interpreter(
            "taskstore.jobs.fork_server", str(os.getpid()), str(theirs.fileno()), json.dumps(tree_of(setup))
        )
        self._process = subprocess.Popen(
            words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        self._end, self._channel = ours, Channel(ours)
        self._sending = threading.Lock()
        self._has_ended = False
        said: Sequence[Message] | None = ()
        while said is not None and not said:
            said = self.receive()
        if not said or "problem" in said[0]:
            self.end()
            raise NotPrepared(said[0]["problem"] if said else "the process that starts the jobs ended at once")
        self.threads_found: int = said[0]["threads"]  # Threads in the server after all imports.

    def receive(self, patience_s: float | None = None) -> Sequence[Message] | None:
        """Return the messages that arrive within that time. None: the server and all its processes have ended."""
        if self._has_ended:
            return None
        poller = select.poll()
        poller.register(self._end, select.POLLIN)
        poller.poll(None if patience_s is None else patience_s * 1_000)
        messages = list(self._channel.receive())
        return messages if messages or self._channel.is_open else None

    def run(self, job: Assignment) -> None:
        self._send(tree_of(job))

    def stop(self, key: int) -> None:
        """End a job. Its outcome is received like any other."""
        self._send({"stop": key})

    def take_back(self, key: int) -> None:
        """End a job unless it has started."""
        self._send({"take_back": key})

    def hang_up(self) -> None:
        """End the server with all its processes. `receive` then returns None."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """End the server and wait for it. No thread may be in `receive`; later calls return None."""
        self._has_ended = True
        self.hang_up()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # Its processes end with it.
            self._process.wait()
        self._end.close()

    def _send(self, message: Message) -> None:
        # A server that has died is noticed by `receive`.
        with self._sending, suppress(OSError):
            self._end.sendall(packed(message))
