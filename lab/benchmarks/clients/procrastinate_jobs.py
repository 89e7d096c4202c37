"""Procrastinate: fetch a job and finish it, by the manager that its worker uses."""

from __future__ import annotations

import os
from collections.abc import Sequence

from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Job, Status

from ..pace import DATA, GROUP
from .client import AsyncClient, run

CHUNK = 1_000


class ProcrastinateClient(AsyncClient):
    """Only what its worker does for the sake of the job: no heartbeats, no log, no function that is called."""

    app: App
    workers: dict[int, int]

    @property
    def processes(self) -> int:
        # It is Python that keeps it busy: more than one process for each core would not help.
        return min(self.load.clients, len(os.sched_getaffinity(0)))

    def prepare(self) -> None:
        with self._app(1).open() as app:
            app.schema_manager.apply_schema()

    def add(self, tasks: int) -> None:
        run(self._add(tasks))

    async def _add(self, tasks: int) -> None:
        job = Job(queue=GROUP, lock=None, queueing_lock=None, task_name="bench", task_kwargs={"data": DATA.decode()})
        async with self._app(1).open_async() as app:
            for start in range(0, tasks, CHUNK):
                await app.job_manager.batch_defer_jobs_async([job] * min(CHUNK, tasks - start))

    async def open(self, owners: Sequence[int]) -> None:
        self.app = self._app(len(owners))
        await self.app.open_async()
        self.workers = {owner: await self.app.job_manager.register_worker() for owner in owners}

    async def close(self) -> None:
        await self.app.close_async()

    async def claim(self, owner: int) -> Sequence[Job]:
        job = await self.app.job_manager.fetch_job([GROUP], self.workers[owner])
        return [job] if job else []

    async def finish(self, owner: int, tasks: Sequence[Job]) -> None:
        for job in tasks:
            await self.app.job_manager.finish_job(job, Status.SUCCEEDED, delete_job=True)

    def _app(self, connections: int) -> App:
        connector = PsycopgConnector(conninfo=self.where["url"], min_size=connections, max_size=connections)
        return App(connector=connector)
