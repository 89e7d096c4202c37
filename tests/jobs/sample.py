"""What the workers of these tests run."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from taskstore import current_job, job


@job
def add(a, b=0):
    return a + b


@job
async def add_later(a, b):
    return a + b


@job(max_attempts=2)
def fail(text):
    print("about to fail")
    raise ValueError(text)


@job
def end_itself(code):
    os._exit(code)


@job
def crash():
    ctypes.string_at(0)


@job
def say(text, times=1):
    for _ in range(times):
        print(text)
    sys.stdout.buffer.write(b"\xff\xfe\n")


@job
def leave_somebody_behind():
    """A process that holds the outputs open, and would live for long."""
    behind = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(behind.pid)
    return behind.pid


@job
def hang_with(worker):
    """It is never done by this worker."""
    if current_job().worker == worker:
        time.sleep(600)


@job
def return_a_set():
    return {1}


@job
def eat_memory():
    eaten = []
    while True:
        eaten.append(bytearray(2**20))


@job
def sleep(seconds):
    if seconds > 1:
        print("I sleep")
    time.sleep(seconds)
    return "slept"


@job
def clean_up_when_told(folder):
    try:
        time.sleep(600)
    finally:
        Path(folder, "cleaned").touch()


@job
def ignore_everything(seconds):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(seconds)


@job
def kill_its_parent():
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


@job
def who_am_i():
    return {"job": current_job().job_id, "attempt": current_job().attempt, "pid": os.getpid()}


@job
def say_much(letters):
    return "x" * letters


@job
def get_half_way(pages):
    for page in range(pages // 2 + 1):
        current_job().progress(page / pages, f"page {page} of {pages}")
    time.sleep(60)


@job
def claim_too_much():
    current_job().progress(1.5)
