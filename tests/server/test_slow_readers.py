"""A client that reads nothing of what it was sent is cut off, and nobody else."""

import asyncio

from taskstore_project.serving.connection import Reader


def test_who_reads_again_is_spared_though_the_server_paused_more_than_once(settings):
    settings.TASKSTORE_SLOW_CLIENT_SECONDS = 0.01
    cut_off = []

    async def read_again():
        reader = Reader(lambda: cut_off.append(True))
        reader.pause()
        reader.pause()  # As Twisted does with each write while the client reads nothing.
        reader.resume()
        left = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.02, left.set_result, None)  # After whatever the reader had set.
        await left

    asyncio.run(read_again())
    assert not cut_off


def test_who_reads_nothing_is_cut_off_also_after_a_pause_that_ended(settings):
    settings.TASKSTORE_SLOW_CLIENT_SECONDS = 0.01

    async def read_nothing():
        cut_off = asyncio.Event()
        reader = Reader(cut_off.set)
        reader.pause()
        reader.resume()
        reader.pause()
        reader.pause()
        await cut_off.wait()

    asyncio.run(asyncio.wait_for(read_nothing(), 5))
