"""PgQueuer: one process that takes so many jobs in a batch."""

import asyncio

import asyncpg
import task
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries


async def main() -> None:
    driver = AsyncpgDriver(await asyncpg.connect(task.ADDRESS))
    if task.DO == "prepare":
        await Queries(driver).install()
    elif task.DO == "work":
        queue = PgQueuer(driver)

        @queue.entrypoint(task.QUEUE)
        async def nothing(job):
            task.run(job.payload.decode())

        await queue.run(batch_size=task.NUMBER)
    else:
        for payloads in task.batches():
            count = len(payloads)
            await Queries(driver).enqueue([task.QUEUE] * count, list(map(str.encode, payloads)), [0] * count)


asyncio.run(main())
