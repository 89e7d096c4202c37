"""RQ's worker, which forks a process for each job, as its command `rq worker` runs it."""

from __future__ import annotations

import sys
from functools import cached_property

from redis import Redis
from rq import Queue
from rq.registry import FinishedJobRegistry

from ..pace import DATA, GROUP
from .job_functions import look_at_clock, nothing
from .jobs import JobClient

CHUNK = 1_000


class RQWorkerClient(JobClient):
    def prepare(self) -> None:
        """Nothing: Valkey needs no tables."""

    def enqueue(self, number: int) -> None:
        job = Queue.prepare_data(nothing, args=(DATA.decode(),))
        for start in range(0, number, CHUNK):
            self._queue.enqueue_many([job] * min(CHUNK, number - start))

    def enqueue_look_at_clock(self, file: str) -> None:
        self._queue.enqueue(look_at_clock, file)

    def workers(self) -> list[list[str]]:
        address = f"unix://{self.where['socket']}"
        command = [sys.executable, "-m", "rq.cli", "worker", "--quiet", "--url", address, GROUP]
        return [command] * self.load.clients

    def finished(self) -> int:
        return int(self._finished.get_job_count(cleanup=False))

    @cached_property
    def _queue(self) -> Queue:
        return Queue(GROUP, connection=Redis(unix_socket_path=self.where["socket"]))

    @cached_property
    def _finished(self) -> FinishedJobRegistry:
        return FinishedJobRegistry(queue=self._queue)
