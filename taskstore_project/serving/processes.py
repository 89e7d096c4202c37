"""The worker processes of a server: started together, replaced when one dies, ended together."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tasks_app.core.meters import Meters, shared_memory
from tasks_app.grpc_api.port import GrpcPort

from ..base_command import CannotRun
from . import sd_notify

PROJECT = Path(__file__).resolve().parents[2]

PAUSE_S = 1.0  # Before another one takes the place of a worker that died: it may die again.
END_PATIENCE_S = 8.5  # The workers have theirs, and end before this.
READY = b"ready\n"  # What a worker says when it serves.

log = logging.getLogger(__name__)


class Crew:
    """`size` processes that serve on one socket, which listens already."""

    def __init__(
        self, bound: socket.socket, url: str, grpc: GrpcPort | None, *, allowed: Mapping[str, bool], size: int
    ) -> None:
        self._bound = bound
        self._descriptor = bound.fileno()
        self._orders = {"socket": bound.fileno(), "url": url, "grpc": grpc and asdict(grpc), **allowed}
        self._size = size
        self._workers: dict[Process, int] = {}  # With the row of each in the memory for what they have done.
        self._free_rows = list(range(size))
        self._memory = shared_memory(size)
        self._meters = Meters()
        self._meters.join(self._memory, size, 0)
        self._must_end = asyncio.Event()
        self._has_cut_off = False

    def run(self, when_ready: Callable[[], None]) -> bool:
        """Serve until SIGTERM or Ctrl-C. Returns whether everything was answered at the end.

        Raises CannotRun when a worker can't even start.
        """
        return asyncio.run(self._run(when_ready))

    async def _run(self, when_ready: Callable[[], None]) -> bool:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        try:
            first = await asyncio.gather(*(self._start() for _ in range(self._size)))
            when_ready()
            await asyncio.gather(*map(self._see_to, first))
        except CannotRun:
            if not self._must_end.is_set():
                raise
        finally:
            await self._end_all()
        return not self._has_cut_off

    def _end(self) -> None:
        """Asked a second time: at once."""
        if not self._must_end.is_set():
            sd_notify.tell(sd_notify.STOPPING)
        number = signal.SIGKILL if self._must_end.is_set() else signal.SIGTERM
        self._must_end.set()
        self._bound.close()  # Else the system would go on accepting for this process.
        for worker in self._workers:
            with suppress(ProcessLookupError):  # It has just ended by itself.
                worker.send_signal(number)

    async def _start(self) -> Process:
        """A worker that serves. Raises CannotRun when it ends before."""
        row = self._free_rows.pop()
        orders = {**self._orders, "meters": [self._memory, self._size, row]}
        # Where Python finds this project, also in a checkout that is not the current directory.
        search_path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH", "")]))
        # In a session of its own: Ctrl-C is for this process, which tells its workers itself.
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "taskstore_project.serving.worker_process", json.dumps(orders),
            env={**os.environ, "PYTHONPATH": search_path}, pass_fds=[self._descriptor, self._memory],
            # Its end of the pipe tells a worker that this process has died.
            stdin=PIPE, stdout=PIPE, start_new_session=True,
        )  # fmt: skip
        self._workers[worker] = row
        if self._must_end.is_set():  # It was told to the others while this one was being made.
            worker.terminate()
        said = await worker.stdout.readline() if worker.stdout else b""
        if said != READY:
            code = await worker.wait()
            self._forget(worker)
            raise CannotRun(f"a worker process ended during startup, with exit code {code}")
        return worker

    def _forget(self, worker: Process) -> None:
        """It has ended. Another one goes on from what it has done."""
        row = self._workers.pop(worker)
        self._meters.forget_levels(row)
        self._free_rows.append(row)

    async def _see_to(self, worker: Process) -> None:
        """Replace the worker whenever it dies, until the crew ends."""
        while True:
            code = await worker.wait()
            self._forget(worker)
            if self._must_end.is_set():
                self._has_cut_off |= code != 0
                return
            log.error("a worker process ended with exit code %s: starting another one", code)
            replacement = await self._replacement()
            if replacement is None:
                return
            worker = replacement

    async def _replacement(self) -> Process | None:
        """Another worker, as soon as one can start; None when the crew ends before."""
        while not self._must_end.is_set():
            try:
                await asyncio.wait_for(self._must_end.wait(), PAUSE_S)
            except TimeoutError:
                try:
                    return await self._start()
                except CannotRun as problem:
                    if not self._must_end.is_set():
                        log.error("%s", problem)
        return None

    async def _end_all(self) -> None:
        """Nothing is left of the crew after this, whatever happened."""
        workers = [worker for worker in self._workers if worker.returncode is None]
        for worker in workers:
            worker.terminate()
        if workers:
            _, late = await asyncio.wait(
                [asyncio.ensure_future(worker.wait()) for worker in workers], timeout=END_PATIENCE_S
            )
            self._has_cut_off |= bool(late)
        for worker in workers:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
