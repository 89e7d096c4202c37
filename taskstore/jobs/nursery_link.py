"""A worker's nursery, as the worker sees it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .messages import Assignment, Nursing, packed, read, tree_of
from .nursery import interpreter

PATIENCE_S = 5.0


class NotPrepared(Exception):
    """The processes of the jobs can't be started. Their modules can't be imported, say, or hold no jobs."""


class NurseryLink:
    """Starts a nursery, tells it what to do, and hears what comes of it.

    It dies with the thread that starts it. `hear` is called, in a thread of its own, with each message, and with None
    when the nursery has ended.
    """

    def __init__(self, setup: Nursing, hear: Callable[[NurseryLink, dict[str, Any] | None], None]) -> None:
        ours, theirs = socket.socketpair()
        words = interpreter(
            "taskstore.jobs.nursery", str(os.getpid()), str(theirs.fileno()), json.dumps(tree_of(setup))
        )
        self._process = subprocess.Popen(
            words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        self._end, self._hear = ours, hear
        self._sending = threading.Lock()
        self.threads_found = 1  # In it, once everything was imported.

    def prepare(self) -> None:
        """Wait until it can run jobs. Raises NotPrepared."""
        stream = self._end.makefile("rb")
        said = read(stream) or {"problem": "the process that starts the jobs ended at once"}
        if "problem" in said:
            stream.close()
            self.end()
            raise NotPrepared(said["problem"])
        self.threads_found = said["threads"]
        threading.Thread(target=self._listen, args=[stream], name="nursery", daemon=True).start()

    def run(self, job: Assignment) -> None:
        self._send(tree_of(job))

    def stop(self, key: int) -> None:
        """Have the job ended; its outcome comes as any other."""
        self._send({"stop": key})

    def take_back(self, key: int) -> None:
        """The same, unless it was started."""
        self._send({"take_back": key})

    def end(self) -> None:
        """With all its processes."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # Its processes end with it.
            self._process.wait()
        self._end.close()

    def _send(self, message: Any) -> None:
        # One that has died says so by the end of its messages.
        with self._sending, suppress(OSError):
            self._end.sendall(packed(message))

    def _listen(self, stream: Any) -> None:
        with stream:
            while (message := read(stream)) is not None:
                if "ready" not in message:
                    self._hear(self, message)
        self._process.wait()
        self._hear(self, None)
