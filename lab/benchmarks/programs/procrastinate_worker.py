"""Procrastinate: a worker that runs one job after the other. The benchmark starts several."""

import logging

import task
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

logging.basicConfig(level=logging.WARNING)
connector = PsycopgConnector if task.DO == "work" else SyncPsycopgConnector
app = App(connector=connector(conninfo=task.ADDRESS))


@app.task(queue=task.QUEUE, name="nothing")
def nothing(payload: str) -> None:
    task.run(payload)


if task.DO == "work":
    app.run_worker(queues=[task.QUEUE], concurrency=1)
else:
    with app.open():
        if task.DO == "prepare":
            app.schema_manager.apply_schema()
        else:
            for payloads in task.batches():
                nothing.batch_defer(*[{"payload": payload} for payload in payloads])
