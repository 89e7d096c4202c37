"""The way in through the writer, whose batches are as large as a test wants."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tasks_app.core.operations import Claim, Commit, Operation, TaskRecord
from tasks_app.writer.writer import Writer

from .people import BOB

# They are answered, and change nothing.
NEIGHBOURS: list[Operation] = [Claim(groups=("nobody's",), owner=BOB), Commit(owner=BOB, deletes=(-1,))]


class CrowdedWriter(Writer):
    """Gives every operation neighbours in its batch, half of them before it."""

    neighbours = 0

    def submit(self, operation: Operation) -> asyncio.Future[list[TaskRecord]]:
        return asyncio.ensure_future(self._among_neighbours(operation))

    async def _among_neighbours(self, operation: Operation) -> list[TaskRecord]:
        operations = [random.choice(NEIGHBOURS) for _ in range(self.neighbours)]
        place = len(operations) // 2
        operations.insert(place, operation)
        # All are queued before the writer's next turn: one batch.
        answers = [super(CrowdedWriter, self).submit(each) for each in operations]
        await asyncio.wait(answers)
        for answer in answers:
            answer.exception()  # Looked at: the neighbours' refusals concern nobody.
        return answers[place].result()


@contextmanager
def writing(neighbours: int) -> Iterator[CrowdedWriter]:
    """A writer that runs, on a loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    writer = asyncio.run_coroutine_threadsafe(started(neighbours), loop).result()
    try:
        yield writer
    finally:
        asyncio.run_coroutine_threadsafe(writer.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def started(neighbours: int) -> CrowdedWriter:
    writer = CrowdedWriter.start()
    assert isinstance(writer, CrowdedWriter)
    writer.neighbours = neighbours
    return writer
