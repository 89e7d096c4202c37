"""The process that runs the commands of a worker's lists: `python -m taskstore.commands.runner DESCRIPTOR`.

A process of its own, because whatever loses its parent below it becomes its child: so it sees and kills all that a
command has started. It has no threads, and does nothing else. When its worker dies, it kills what runs, and ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from multiprocessing.connection import Connection

from ..jobs.processes import prefer_for_oom_kill
from ..types.command_record import Output, is_late
from . import descendants
from .execution import Execution
from .messages import Assignment, Order, Over, Ran, Setup, Wrote

END_BYTES = 8 * 2**10  # Of what a running command has written, for those who look on.


def main(descriptor: int) -> None:
    # Signals for a whole service reach it too; the worker decides what ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    os.set_inheritable(descriptor, False)  # No line should speak for its runner, or keep the connection when that dies.
    descendants.adopt_orphans()
    prefer_for_oom_kill()
    with Connection(descriptor) as worker:
        try:
            _serve(worker)
        except (EOFError, OSError):  # The worker has ended, or died.
            descendants.kill_all()


def _serve(worker: Connection) -> None:
    setup: Setup = worker.recv()
    os.chdir(setup.cwd)
    while True:
        match worker.recv():
            case Assignment() as assignment:
                Runner(worker, setup).run(assignment)
            case Order():
                """To a list that is over already."""


class Runner:
    """Runs the commands of one list."""

    def __init__(self, worker: Connection, setup: Setup) -> None:
        self._worker, self._setup = worker, setup
        self._order: Order | None = None
        self._place, self._told = 0, (-1, -1)  # What runs, and how much of its outputs was told.

    def run(self, assignment: Assignment) -> None:
        bytes_left = self._setup.most_bytes
        for place, (command, limit_s) in enumerate(assignment.commands):
            if self._order or bytes_left <= 0:
                break
            if not is_late(command, assignment.clock.now_s()):
                bytes_left -= self._run(place, Execution(command, self._setup, limit_s, assignment.clock))
        self._worker.send(Over())

    def hear(self, execution: Execution) -> None:
        self._order = self._worker.recv()
        if self._order is Order.STOP:
            execution.kill("stopped")

    def tell(self, execution: Execution) -> None:
        written = (execution.out.written, execution.err.written)
        if written != self._told:
            self._told = written
            ends = {"out": execution.out.end(END_BYTES), "err": execution.err.end(END_BYTES)}
            self._worker.send(Wrote(place=self._place, started=execution.started, **ends))

    def _run(self, place: int, execution: Execution) -> int:
        """How many bytes the outputs take in a list."""
        self._place, self._told = place, (-1, -1)
        run = execution.run(self._worker.fileno(), self)
        if self._order is Order.STOP:
            return 0
        self._worker.send(Ran(place=place, run=run, left=execution.left))
        return _size(run.out) + _size(run.err)


def _size(output: Output) -> int:
    """As JSON: control characters take six."""
    return len(json.dumps(output.text, ensure_ascii=False).encode()) + len(output.base64)


if __name__ == "__main__":
    main(int(sys.argv[1]))
