"""RQ: the steps of its worker that does not fork for each job, with a process for each worker."""

from __future__ import annotations

from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker

from ..pace import DATA, GROUP
from .client import ProcessClient

CHUNK = 1_000


def nothing(data: str) -> None:
    """The job."""


class RQClient(ProcessClient):
    worker: SimpleWorker

    def prepare(self) -> None:
        """Nothing: Valkey needs no tables."""

    def add(self, tasks: int) -> None:
        queue = Queue(GROUP, connection=self._redis())
        # Deleted when it is done, as the other contenders do.
        job = Queue.prepare_data(nothing, args=(DATA.decode(),), result_ttl=0)
        for start in range(0, tasks, CHUNK):
            queue.enqueue_many([job] * min(CHUNK, tasks - start))

    def open(self) -> None:
        redis = self._redis()
        self.worker = SimpleWorker([Queue(GROUP, connection=redis)], connection=redis)
        self.worker.register_birth()

    def claim(self) -> Any:
        """A job and its queue; without waiting, None when there is none."""
        return self.worker.dequeue_job_and_maintain_ttl(None)

    def finish(self, task: Any) -> None:
        self.worker.execute_job(*task)

    def _redis(self) -> Redis:
        return Redis(unix_socket_path=self.where["socket"])
