"""`JobWorker`, and the function behind `taskstore work MODULE...`."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from ..client.client import Client
from ..types.job_record import DEFAULT_QUEUE, queue_group
from ..types.tasks import Order
from ..worker.engine import Engine
from ..worker.outputs import OutputTo
from ..worker.store import Store
from .executor import Jobs, Setup, Work
from .process import prepare
from .registry import REGISTERED
from .verdicts import Outcome

KILL_AFTER_MS = 5_000  # The time from SIGTERM to SIGKILL.


class JobWorker(Engine[Work, Outcome]):
    """A worker that runs the jobs of these queues, up to `processes` at the same time.

    `run` raises NotPrepared if the jobs' modules can't be imported or contain no jobs.

    * `runner`: `module:callable` and its arguments. It is called once, before processes are forked, and returns the
      lookup of functions; see `registry.resolve`.
    * `processes`: by default the number of cores.
    * `lease_ms`: how long until other workers get the jobs of a worker whose machine died.
    * `jobs_per_process`: more than 1 saves the start of a process for quick jobs, which then share its state.
    * `start`: "spawn" starts a new interpreter for each process, for modules that start threads when imported.
    * `name`: for operators; by default the host and the process id.
    * `memory_bytes`: the memory limit of jobs that don't set one.
    * `grace_s`: how long running jobs may continue when the worker stops. Then they are given back. If the store is
      unavailable at that time, their leases have to end first.
    * `kill_after_ms`: how long a job may take to end after SIGTERM.
    * `wait_ms`: how long the server holds a claim when no job is due.
    * `output`: what jobs write is kept in the store ("store"), and copied to standard error: each line after the id and
      the function of its job ("copy"), or as it is ("raw").
    * `alive`: a file to touch every ten seconds while the store answers, for the probe of a service manager.
    """

    burst_wait_s = 60.0

    def __init__(
        self,
        store: Store,
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
        output: OutputTo = "copy",
        alive: str = "",
    ) -> None:
        setup = Setup(
            prepare=partial(prepare, runner, jobs_per_process),
            processes=processes or os.cpu_count() or 1,
            jobs_per_process=jobs_per_process,
            spawn=start == "spawn",
            kill_after_s=kill_after_ms / 1_000,
            memory_bytes=memory_bytes,
            output=output,
            alive=alive,
        )
        groups = [queue_group(queue) for queue in queues]
        super().__init__(
            store,
            Jobs(store, groups, setup),
            groups,
            name=name or f"{socket.gethostname()}:{os.getpid()}",
            lease_ms=lease_ms,
            order=Order.OLDEST,
            wait_ms=wait_ms,
            grace_s=grace_s,
        )


def run_worker(
    modules: Sequence[str],
    *,
    queues: Sequence[str] = (),
    store: Client | None = None,
    until_empty: bool = False,
    burst_wait_s: float | None = None,
    **options: Any,
) -> Sequence[str]:
    """Run the jobs of these modules until SIGTERM or SIGINT, or until no job is due. Options: those of JobWorker.

    Returns what was left because it comes later than in `burst_wait_s`; see Engine.run.

    Raises NotPrepared, which names the module that can't be imported or contains no jobs, and the errors of a Client.
    """
    if os.getcwd() not in sys.path:
        # Python puts the directory of the installed command on the path, but users expect the current one.
        sys.path.insert(0, os.getcwd())
    runner = [REGISTERED, *modules]
    worker = JobWorker(store or Client(), queues or [DEFAULT_QUEUE], runner=runner, **options)
    worker.run(until_empty=until_empty, burst_wait_s=burst_wait_s)
    return worker.left
