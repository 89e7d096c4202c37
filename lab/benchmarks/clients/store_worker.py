"""This store's workers of jobs and of shell commands at a server of its own, and what shells cost without any."""

from __future__ import annotations

import subprocess
import time

from taskstore import NewTask, job
from taskstore.types.command_record import CommandStatus, group_of
from taskstore.types.commands import Submission
from taskstore.types.job_record import FUNCTION_LABEL, JobRecord, JobStatus, finished_group, queue_group

from ..pace import DATA, GROUP
from . import job_functions
from .client import Party
from .jobs import AtOurServer, JobClient, WorkersClient, wait_until, working

CHUNK = 1_000
nothing = job(queue=GROUP)(job_functions.nothing)
look_at_clock = job(queue=GROUP)(job_functions.look_at_clock)

NOTHING = ":"  # As quick as a line can be.


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


class CommandsClient(AtOurServer, WorkersClient):
    def commands(self, number: int) -> dict[str, float]:
        """Submit commands, start the workers when all are in lists, and look on until all are completed."""
        before = self.finished()  # Those of an earlier round.
        self.enqueue(number)
        wait_until(lambda: not self._count(CommandStatus.NEW))
        with working(self.workers()):
            return self._results(before, number)

    def enqueue(self, number: int) -> None:
        # By what is usually expected ten would be a list.
        asked = [Submission(cmd=NOTHING, expected_duration=1)] * CHUNK
        for start in range(0, number, CHUNK):
            self.store.commands.submit(GROUP, asked[: number - start])

    def workers(self) -> list[list[str]]:
        return [[*self.in_store("commands"), "worker", GROUP]] * self.load.clients

    def finished(self) -> int:
        return self._count(CommandStatus.COMPLETED)

    def _count(self, status: CommandStatus) -> int:
        return self.tasks_of(group_of(GROUP, status))


class XargsClient(Party):
    def prepare(self) -> None:
        """Nothing."""

    def commands(self, number: int) -> dict[str, float]:
        command = ["xargs", f"-P{self.load.clients}", "-n1", "sh", "-c"]
        began_s = time.monotonic()
        subprocess.run(command, input=f"{NOTHING}\n".encode() * number, check=True)
        return {"per_second": number / (time.monotonic() - began_s)}
