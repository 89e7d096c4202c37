"""Worker processes of a demo: started, killed at random if asked for, started again, ended."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

KILL_EVERY_S = (0.5, 1.5)  # A random time between these.
CHANCE = random.SystemRandom()


class WorkerFailed(Exception):
    """A worker ended unexpectedly; its standard error says why."""


class Crew:
    """Processes that run the same program until the crew is dismissed.

    What they write to standard output are lines like `map 40`; `progress` is the sum for each
    word, without what a killed worker had no time to tell.
    """

    def __init__(
        self, program: Path, arguments: Sequence[str], environment: Mapping[str, str], *, size: int, is_killed: bool
    ) -> None:
        self.kills = 0
        self.progress: Counter[str] = Counter()
        self._command = [sys.executable, str(program), *arguments]
        self._environment = {**os.environ, **environment}
        self._size = size
        self._is_killed = is_killed
        self._next_kill_s = 0.0
        self._workers: list[subprocess.Popen[bytes]] = []
        self._unread = b""

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._workers = [self._start() for _ in range(self._size)]
        self._plan_kill()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.wait()
        os.close(self._reading)
        os.close(self._writing)

    def look_after(self) -> None:
        """Kill and restart workers as due; call it regularly. Raises WorkerFailed if one ended unexpectedly."""
        for worker in self._workers:
            if worker.poll() is not None:
                raise WorkerFailed(f"a worker ended with exit code {worker.returncode}")
        if self._is_killed and time.monotonic() >= self._next_kill_s:
            self._kill_one()
        self._add_up()

    def _start(self) -> subprocess.Popen[bytes]:
        # In a separate process group, so that Ctrl-C reaches only the demo, which ends its workers.
        return subprocess.Popen(
            self._command, env=self._environment, stdout=self._writing, stdin=subprocess.DEVNULL, process_group=0
        )

    def _kill_one(self) -> None:
        place = CHANCE.randrange(self._size)
        self._workers[place].kill()  # SIGKILL, so that it can't clean up.
        self._workers[place].wait()
        self._workers[place] = self._start()
        self.kills += 1
        self._plan_kill()

    def _plan_kill(self) -> None:
        self._next_kill_s = time.monotonic() + CHANCE.uniform(*KILL_EVERY_S)

    def _add_up(self) -> None:
        try:
            self._unread += os.read(self._reading, 65_536)
        except BlockingIOError:
            return
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            what, number = line.decode().split()
            self.progress[what] += int(number)
