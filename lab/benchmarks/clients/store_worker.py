"""This store's worker of jobs, as the command `work` runs it, at a server of its own."""

from __future__ import annotations

from taskstore import NewTask, job
from taskstore.types.job_record import FUNCTION_LABEL, JobRecord, JobStatus, finished_group, queue_group

from ..load import DATA, GROUP
from . import job_functions
from .jobs import AtOurServer, JobClient

CHUNK = 1_000
nothing = job(queue=GROUP)(job_functions.nothing)
look_at_clock = job(queue=GROUP)(job_functions.look_at_clock)


class StoreWorkerClient(AtOurServer, JobClient):
    jobs_per_process = 1

    def enqueue(self, number: int) -> None:
        record = JobRecord(function=nothing.path, args=[DATA.decode()])
        new = NewTask(group=queue_group(GROUP), data=record.encode(), labels={FUNCTION_LABEL: record.function})
        for start in range(0, number, CHUNK):
            self.store.commit(adds=[new] * min(CHUNK, number - start))

    def enqueue_look_at_clock(self, file: str) -> None:
        look_at_clock.enqueue(self.store, file)

    def workers(self) -> list[list[str]]:
        how = ["--processes", str(self.load.clients), "--jobs-per-process", str(self.jobs_per_process)]
        return [[*self.in_store("work"), "--queue", GROUP, *how, __name__]]

    def finished(self) -> int:
        return self.tasks_of(finished_group(GROUP, JobStatus.SUCCEEDED))


class ReusingStoreWorkerClient(StoreWorkerClient):
    jobs_per_process = 1_000
