"""Tasks of the loop end when they are told to, whatever they wait for."""

import asyncio

from tasks_app.writer.cancelling import ended


def test_a_task_ends_that_lost_its_first_cancellation():
    lost: list[bool] = []

    async def forgetful():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if lost:
                    raise
                lost.append(True)

    async def story():
        tasks = [asyncio.create_task(forgetful()) for _ in range(3)]
        await asyncio.sleep(0)  # Each waits now.
        await asyncio.wait_for(ended(*tasks), timeout=20)
        return [task.cancelled() for task in tasks]

    assert asyncio.run(story()) == [True] * 3
    assert lost


def test_nothing_is_ended_at_once():
    asyncio.run(asyncio.wait_for(ended(), timeout=20))
