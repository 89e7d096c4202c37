"""Procrastinate's worker, as its command `procrastinate worker` runs it: started with the address of the database."""

from __future__ import annotations

import logging
import sys
from functools import cached_property

import psycopg
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
from procrastinate.connector import BaseConnector

from ..pace import DATA, GROUP
from .job_functions import look_at_clock, nothing
from .jobs import JobClient, module, one

CHUNK = 1_000


def app_with(connector: BaseConnector) -> App:
    """An app that knows the jobs."""
    app = App(connector=connector)
    app.task(queue=GROUP, name="nothing")(nothing)
    app.task(queue=GROUP, name="look_at_clock")(look_at_clock)
    return app


class ProcrastinateWorkerClient(JobClient):
    def prepare(self) -> None:
        with self._app().open() as app:
            app.schema_manager.apply_schema()

    def enqueue(self, number: int) -> None:
        with self._app().open() as app:
            job = app.tasks["nothing"]
            for start in range(0, number, CHUNK):
                job.batch_defer(*[{"data": DATA.decode()}] * min(CHUNK, number - start))

    def enqueue_look_at_clock(self, file: str) -> None:
        self._opened.tasks["look_at_clock"].defer(file=file)

    def workers(self) -> list[list[str]]:
        # A process for each: one with `concurrency` would have to do with one core.
        return [module("procrastinate_worker", self.where["url"])] * self.load.clients

    def finished(self) -> int:
        question = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"
        return one(self._database.execute(question).fetchone())

    @cached_property
    def _database(self) -> psycopg.Connection:
        return psycopg.connect(self.where["url"], autocommit=True)

    @cached_property
    def _opened(self) -> App:
        """As a program has it that goes on to enqueue."""
        app = self._app()
        app.open()
        return app

    def _app(self) -> App:
        return app_with(SyncPsycopgConnector(conninfo=self.where["url"]))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    app_with(PsycopgConnector(conninfo=sys.argv[1])).run_worker(queues=[GROUP], concurrency=1)
