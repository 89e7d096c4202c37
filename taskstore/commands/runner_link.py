"""The worker's side of its runner."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection

from ..types.command_record import Command
from . import descendants
from .messages import Assignment, Clock, Order, Over, Ran, Setup, Wrote

MARK = "TASKSTORE_RUNNER"  # The environment variable by which all processes of a runner are found.
END_S = 5.0
POLL_S = 0.25  # The longest wait before the caller can send an order.


class RunnerDied(Exception):
    """The process that runs the commands was killed, together with the running command."""


class RunnerLink:
    """A runner, which is started when needed and replaced if it dies. One thread runs lists on it."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._process: subprocess.Popen[bytes] | None = None
        self._sending = threading.Lock()

    @property
    def is_alive(self) -> bool:
        """Whether there is a process, which may be running a command."""
        return self._process is not None

    def run(self, commands: Sequence[tuple[Command, float]], clock: Clock) -> Iterator[Wrote | Ran | None]:
        """Run commands, and yield the runner's messages, or None after a short time without one. Raises RunnerDied."""
        if self._process is None:
            self._start()
        self._send(Assignment(commands=commands, clock=clock))
        while not isinstance(message := self._next_message(), Over):
            yield message

    def order(self, order: Order) -> None:
        self._send(order)

    def end(self) -> None:
        """End the runner with everything that it runs."""
        if self._process is None:
            return
        self._connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._clean_up()

    def kill(self) -> None:
        """Kill the runner with everything that it runs. May be called by any thread; `run` raises RunnerDied."""
        if process := self._process:
            process.kill()
            process.wait()
            descendants.kill_marked(self._mark)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._mark = f"{MARK}={secrets.token_hex(8)}"
        name, _, value = self._mark.partition("=")
        command = [sys.executable, "-m", f"{__package__}.runner", str(theirs.fileno())]
        # A new session, so that Ctrl-C reaches only the worker.
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._connection = Connection(ours.detach())
        self._send(replace(self._setup, env={**self._setup.env, name: value}))

    def _send(self, message: object) -> None:
        with self._sending, suppress(OSError):  # `run` notices a dead runner.
            self._connection.send(message)

    def _next_message(self) -> Wrote | Ran | Over | None:
        try:
            if not self._connection.poll(POLL_S):
                return None
            message: Wrote | Ran | Over = self._connection.recv()
        except (EOFError, OSError) as problem:
            self._connection.close()
            code = self._clean_up()
            raise RunnerDied(f"the process that runs the commands has ended with {code}") from problem
        return message

    def _clean_up(self) -> int:
        """Kill the runner and everything that it started. Returns its exit code."""
        assert self._process is not None  # noqa: S101 - for the types.
        self._process.kill()
        code = self._process.wait()
        descendants.kill_marked(self._mark)
        self._process = None
        return code
