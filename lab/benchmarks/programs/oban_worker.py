"""Oban for Python: one process with so many jobs at once."""

import asyncio
from typing import Any

import task
import uvloop
from oban import Oban, schema, worker


@worker(queue=task.QUEUE)
class Nothing:
    async def process(self, job: Any) -> None:
        task.run(job.args["payload"])


async def main() -> None:
    pool = await Oban.create_pool(dsn=task.ADDRESS)
    if task.DO == "prepare":
        await schema.install(pool)
    elif task.DO == "work":
        async with Oban(pool=pool, queues={task.QUEUE: task.NUMBER}):
            await asyncio.Event().wait()
    else:
        oban = Oban(pool=pool)
        for payloads in task.batches():
            await oban.enqueue_many(*[Nothing.new({"payload": payload}) for payload in payloads])
    await pool.close()


uvloop.run(main())
