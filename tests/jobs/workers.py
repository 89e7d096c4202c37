"""Jobs, and who runs them: a worker in a thread, or one in a process of its own that can be killed."""

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from lab.testing import PROJECT
from taskstore import Client
from taskstore.jobs.registry import REGISTERED
from taskstore.jobs.worker import JobWorker
from taskstore.types.job_record import DEFAULT_QUEUE, JobOptions, JobRecord, JobStatus, groups_of, new_task, status_of
from taskstore.types.tasks import State

SAMPLE = "tests.jobs.sample"
PATIENCE_S = 30


class Queue:
    """The jobs of the store."""

    def __init__(self, store: Client, token: str) -> None:
        self.store, self.token = store, token

    def enqueue(self, function, *args, **options):
        """The id of a job."""
        record = JobRecord(function=f"{SAMPLE}.{function}", args=args, options=JobOptions(**options))
        [task] = self.store.commit(adds=[new_task(record)])
        return task.origin

    def task(self, job_id):
        # It may finish between the two groups that are looked at.
        return max((task for task in self.tasks() if task.origin == job_id), key=lambda task: task.id)

    def tasks(self):
        return [task for group in groups_of(DEFAULT_QUEUE) for task in self.store.group(group, owned=True)]

    def record(self, job_id):
        return JobRecord.decode(self.task(job_id).data)

    def status(self, job_id):
        return status_of(self.task(job_id).group, State.READY)

    def finished(self, job_id, patience_s=PATIENCE_S):
        """The record of the job once it is finished."""
        is_finished = {JobStatus.SUCCEEDED, JobStatus.FAILED}.__contains__
        eventually(lambda: is_finished(self.status(job_id)), patience_s)
        assert is_finished(self.status(job_id))
        return self.record(job_id)

    def new_worker(self, **options):
        options = {"processes": 2, "kill_after_ms": 300, "wait_ms": 100, **options}
        return JobWorker(self.store, runner=[REGISTERED, SAMPLE], **options)

    @contextmanager
    def worker(self, **options):
        worker = self.new_worker(**options)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            yield worker
        finally:
            worker.stop()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    @contextmanager
    def worker_process(self, **options):
        """Ends by kill -9."""
        code = f"from taskstore.jobs.worker import run_worker; run_worker(['{SAMPLE}'], **{options!r})"
        environment = {**os.environ, "TASKSTORE_URL": self.store.url, "TASKSTORE_TOKEN": self.token}
        process = subprocess.Popen([sys.executable, "-c", code], cwd=PROJECT, env=environment)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def eventually(condition, patience_s=PATIENCE_S):
    until, rest_s = time.monotonic() + patience_s, 0.02
    while not (met := condition()) and time.monotonic() < until:
        time.sleep(rest_s)
        rest_s = min(1.2 * rest_s, 0.3)  # To look costs as much as what it waits for.
    return met
