"""The runner, the process that runs a worker's commands: `python -m taskstore.commands.runner DESCRIPTOR`.

It is a separate process so that orphaned descendants of a command become its children, where it can find and kill
them. It has no threads and does nothing else. When its worker dies, it kills the running command and ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from multiprocessing.connection import Connection

from ..jobs.processes import prefer_for_oom_kill
from ..types.command_record import is_late
from . import descendants
from .execution import Execution
from .messages import Assignment, Order, Over, Ran, Setup, Wrote

END_BYTES = 8 * 2**10  # The size of a live output.


def main(descriptor: int) -> None:
    # A service manager signals the runner too, but the worker decides when it ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    os.set_inheritable(descriptor, False)  # A command must not write to the worker or keep the connection open.
    descendants.adopt_orphans()
    prefer_for_oom_kill()
    with Connection(descriptor) as worker:
        try:
            setup: Setup = worker.recv()
            os.chdir(setup.cwd)
            while True:
                message = worker.recv()
                if isinstance(message, Assignment):  # Otherwise a late order for a list that is over.
                    Runner(worker, setup).run(message)
        except (EOFError, OSError):  # The worker has ended.
            descendants.kill_all()


class Runner:
    """Runs the commands of one list."""

    def __init__(self, worker: Connection, setup: Setup) -> None:
        self._worker, self._setup = worker, setup
        self._order: Order | None = None
        self._place, self._reported = 0, (-1, -1)  # The running command and the sizes of its reported outputs.

    def run(self, assignment: Assignment) -> None:
        bytes_left = self._setup.most_bytes
        for place, (command, limit_s) in enumerate(assignment.commands):
            if self._order or bytes_left <= 0:
                break
            if not is_late(command, assignment.clock.now_s()):
                bytes_left -= self._run(place, Execution(command, self._setup, limit_s, assignment.clock))
        self._worker.send(Over())

    def on_message(self, execution: Execution) -> None:
        self._order = self._worker.recv()
        if self._order is Order.STOP:
            execution.kill("stopped")

    def on_progress(self, execution: Execution) -> None:
        written = (execution.out.written, execution.err.written)
        if written != self._reported:
            self._reported = written
            ends = {"out": execution.out.end(END_BYTES), "err": execution.err.end(END_BYTES)}
            self._worker.send(Wrote(place=self._place, started=execution.started, progress=execution.progress, **ends))

    def _run(self, place: int, execution: Execution) -> int:
        """Run a command. Returns the size of its outputs in the list's JSON, where control characters take 6 bytes."""
        self._place, self._reported = place, (-1, -1)
        run = execution.run(self._worker.fileno(), self)
        if self._order is Order.STOP:
            return 0
        self._worker.send(Ran(place=place, run=run, left=execution.left))
        return sum(
            len(json.dumps(output.text, ensure_ascii=False).encode()) + len(output.base64)
            for output in (run.out, run.err)
        )


if __name__ == "__main__":
    main(int(sys.argv[1]))
