"""A runner, as its worker sees it."""

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
from .clock import Clock
from .messages import Assignment, Order, Over, Ran, Setup, Wrote

MARK = "TASKSTORE_RUNNER"  # In the environment of all that a runner starts.
END_S = 5.0
LOOK_S = 0.25  # How often it is looked whether something is to be ordered.


class RunnerDied(Exception):
    """The process that runs the commands was killed, and what it ran with it."""


class RunnerLink:
    """Starts a runner when it is needed, and another one after its death. One thread has it run lists."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._process: subprocess.Popen[bytes] | None = None
        self._sending = threading.Lock()

    @property
    def is_alive(self) -> bool:
        """Whether there is a process, which may be running a command."""
        return self._process is not None

    def run(self, commands: Sequence[tuple[Command, float]], clock: Clock) -> Iterator[Wrote | Ran | None]:
        """What it tells of these commands; None now and then, when it tells nothing. Raises RunnerDied."""
        if self._process is None:
            self._start()
        self._send(Assignment(commands=commands, clock=clock))
        while not isinstance(message := self._heard(), Over):
            yield message

    def order(self, order: Order) -> None:
        self._send(order)

    def end(self) -> None:
        """With all that it runs."""
        if self._process is None:
            return
        self._connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._bury()

    def kill(self) -> None:
        """From another thread: what it runs dies with it, and whoever listens to it hears that."""
        if process := self._process:
            process.kill()
            process.wait()
            self._kill_what_it_left()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._mark = f"{MARK}={secrets.token_hex(8)}"
        name, _, value = self._mark.partition("=")
        command = [sys.executable, "-m", f"{__package__}.runner", str(theirs.fileno())]
        # A session of its own: Ctrl-C is for the worker.
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=_environment(),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._connection = Connection(ours.detach())
        self._send(replace(self._setup, env={**self._setup.env, name: value}))

    def _send(self, message: object) -> None:
        with self._sending, suppress(OSError):  # Who listens sees that it has died.
            self._connection.send(message)

    def _heard(self) -> Wrote | Ran | Over | None:
        try:
            if not self._connection.poll(LOOK_S):
                return None
            message: Wrote | Ran | Over = self._connection.recv()
        except (EOFError, OSError) as problem:
            self._connection.close()
            code = self._bury()
            raise RunnerDied(f"the process that runs the commands has ended with {code}") from problem
        return message

    def _bury(self) -> int:
        """See to it that nothing is left of it and of what it ran. Its exit code."""
        assert self._process is not None  # noqa: S101 - for the types.
        self._process.kill()
        code = self._process.wait()
        self._kill_what_it_left()
        self._process = None
        return code

    def _kill_what_it_left(self) -> None:
        descendants.kill_bearers(self._mark)


def _environment() -> dict[str, str]:
    """In which the runner finds the modules that this process has."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
