"""Memory that large requests took is given back."""

import asyncio
import platform
import subprocess
import sys

import pytest

from tasks_app.offload import memory

# As threads do with large messages: the first one has the C library expect more of them.
TAKE = """
import threading
from tasks_app.offload.memory import give_back, give_back_at_once

def resident_mb():
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024

def take():
    bytearray(31 * 2**20)
    pieces = [bytearray(b"x" * 2**20) for _ in range(60)]

give_back_at_once()
before = resident_mb()
for _ in range(4):
    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
give_back()
print(resident_mb() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a matter of glibc")
def test_threads_keep_nothing_of_large_requests():
    done = subprocess.run([sys.executable, "-c", TAKE], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 10


def test_a_server_that_has_closed_its_threads_gives_nothing_back_and_logs_nothing(monkeypatch):
    raised = []

    async def ends():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: raised.append(context))
        memory.give_back_soon()
        await loop.shutdown_default_executor()
        await asyncio.sleep(0.05)

    monkeypatch.setattr(memory, "LATER_S", 0.01)
    asyncio.run(ends())
    assert raised == []
