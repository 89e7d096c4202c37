"""This store's worker of jobs, as the command `work` runs it, at a server of its own."""

from __future__ import annotations

import os
import sys
from functools import cached_property

import psycopg

from taskstore import Client, NewTask, job
from taskstore.types.job_record import FUNCTION_LABEL, JobRecord, JobStatus, finished_group, queue_group

from ..load import DATA, GROUP
from . import job_functions
from .jobs import JobClient, one

CHUNK = 1_000
nothing = job(queue=GROUP)(job_functions.nothing)
look_at_clock = job(queue=GROUP)(job_functions.look_at_clock)


class StoreWorkerClient(JobClient):
    jobs_per_process = 1

    def prepare(self) -> None:
        """Nothing: the server has made the tables."""

    def enqueue(self, number: int) -> None:
        record = JobRecord(function=nothing.path, args=[DATA.decode()])
        new = NewTask(group=queue_group(GROUP), data=record.encode(), labels={FUNCTION_LABEL: record.function})
        for start in range(0, number, CHUNK):
            self._store.commit(adds=[new] * min(CHUNK, number - start))

    def enqueue_look_at_clock(self, file: str) -> None:
        look_at_clock.enqueue(self._store, file)

    def workers(self) -> list[list[str]]:
        server = self.where["servers"][0]
        os.environ.update(TASKSTORE_URL=server["url"], TASKSTORE_TOKEN=server["token"])
        how = ["--processes", str(self.load.clients), "--jobs-per-process", str(self.jobs_per_process)]
        return [[sys.executable, "-m", "taskstore_project", "work", "--queue", GROUP, *how, __name__]]

    def finished(self) -> int:
        question = 'SELECT count(*) FROM tasks_app_task WHERE "group" = %s'
        return one(self._database.execute(question, [finished_group(GROUP, JobStatus.SUCCEEDED)]).fetchone())

    @cached_property
    def _store(self) -> Client:
        server = self.where["servers"][0]
        return Client(server["url"], token=server["token"])

    @cached_property
    def _database(self) -> psycopg.Connection:
        return psycopg.connect(self.where["url"], autocommit=True)


class ReusingStoreWorkerClient(StoreWorkerClient):
    jobs_per_process = 1_000
