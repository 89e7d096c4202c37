"""A worker of jobs, as programs make it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Literal

from ..types.job_record import DEFAULT_QUEUE, queue_group
from ..types.tasks import Order
from ..worker.engine import Engine
from .executor import Jobs, Work
from .messages import Setup
from .orphans import JobStore

KILL_AFTER_MS = 5_000  # How long after SIGTERM a job is ended by SIGKILL.


class JobWorker(Engine[Work]):
    """Runs jobs of these queues, `processes` at the same time. `run` raises NotPrepared when there is nothing to run.

    * `runner`: what finds their functions: `module:callable` and the words that it is called with, once, in the
      process that those of the jobs are copies of. See `registry.resolve`.
    * `lease_ms`: how long it may take until others get the jobs of a worker whose machine has died.
    * `jobs_per_process`: more than 1 saves the time that a process takes, for quick jobs. They share what they leave
      behind in it.
    * `start`: "spawn" makes each process a fresh interpreter, for modules that start threads when imported.
    * `memory_bytes`: for the process of a job that says nothing of its own.
    * `grace_s`: how long jobs may go on when the worker stops. Then they are given back. A store that is away then is
      waited for as little: what it was not told is left to the leases.
    * `kill_after_ms`: how long a job may take to end that was told to.
    * `wait_ms`: how long a request waits for a job, which it brings at once.
    """

    def __init__(
        self,
        store: JobStore,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        *,
        runner: Sequence[str],
        processes: int | None = None,
        lease_ms: int = 30_000,
        jobs_per_process: int = 1,
        start: Literal["fork", "spawn"] = "fork",
        name: str = "",
        memory_bytes: int | None = None,
        grace_s: float = 8,  # Docker kills after ten.
        kill_after_ms: int = KILL_AFTER_MS,
        wait_ms: int = 20_000,
    ) -> None:
        setup = Setup(
            runner=runner,
            processes=processes or os.cpu_count() or 1,
            jobs_per_process=jobs_per_process,
            spawn=start == "spawn",
            kill_after_ms=kill_after_ms,
        )
        groups = [queue_group(queue) for queue in queues]
        super().__init__(
            store,
            Jobs(store, groups, setup, memory_bytes=memory_bytes),
            groups,
            name=name or f"{socket.gethostname()}:{os.getpid()}",
            lease_ms=lease_ms,
            order=Order.OLDEST,
            wait_ms=wait_ms,
            grace_s=grace_s,
        )
