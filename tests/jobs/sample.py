"""What the workers of these tests run."""

import asyncio
import atexit
import ctypes
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

from taskstore import Client, JobStatus, Retry, Save, Snooze, SoftTimeLimit, current_job, job
from taskstore.worker.children import INTERRUPT


@job
def add(a, b=0):
    return a + b


@job
def add_up(address, token):
    """The sum of the results of the batch that this job follows."""
    with Client(address, token=token) as store:
        total, after = 0, None
        while True:
            page = store.jobs.list(batch=current_job().after_batch, status=JobStatus.SUCCEEDED, limit=2, after=after)
            total += sum(each.result for each in page.jobs)
            if (after := page.after) is None:
                return total


@job
def wrap_up(seconds):
    try:
        time.sleep(seconds)
    except SoftTimeLimit:
        return "a part"
    return "all"


@job
async def sleep_awaiting(seconds):
    try:
        await asyncio.sleep(seconds)
    finally:
        print("cleaned up")


@job
def total(numbers):
    return sum(numbers) if isinstance(numbers, list) else numbers


@job
def same(value):
    return value


@job
async def add_later(a, b):
    return a + b


@job(max_attempts=2)
def fail(text):
    print("about to fail")
    raise ValueError(text)


@job
def log_and_fail(text):
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("sample").exception("it has failed")
        raise


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
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(BaseException):
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


@job(max_attempts=5, backoff=[timedelta(milliseconds=10)], jitter=0.5, retry_on=OSError, discard_on=PermissionError)
def obey(folder, *orders):
    """Do what the next order says, at each call another one."""
    calls = len(list(Path(folder).iterdir()))
    Path(folder, f"call {calls} attempt {current_job().attempt}").touch()
    match orders[calls]:
        case "wait":
            raise Snooze(timedelta(milliseconds=10))
        case "again":
            raise Retry(timedelta(milliseconds=10), "not yet")
        case "break":
            raise ConnectionError("broken")
        case "give up":
            raise KeyError("no such thing")
        case "save":
            raise Save(error="it can't be helped")
        case "drop":
            raise PermissionError("never mind")
    return calls


@job
def sleep_in_threads(number):
    """Each thread reserves 8 MiB for its stack, and uses little of it."""
    threads = [threading.Thread(target=time.sleep, args=[0.6]) for _ in range(number)]
    for thread in threads:
        thread.start()
    return len(threads)


@job
def allocate(size):
    some = bytearray(size)
    time.sleep(600)
    return len(some)


@job
def own_oom_score():
    return int(Path("/proc/self/oom_score_adj").read_text())


@job
def use_a_pool():
    with ProcessPoolExecutor(1) as pool:
        squares = list(pool.map(square, range(3)))
        [process] = pool._processes.values()
        process.terminate()
        try:
            pool.submit(square, 1).result()
        except BrokenProcessPool as problem:
            broken = type(problem).__name__
    process = multiprocessing.Process(target=time.sleep, args=[600])
    process.start()
    process.terminate()
    process.join()
    return {"squares": squares, "broken": broken, "exitcode": process.exitcode}


def square(number):
    return number * number


@job
def leave_a_thread(folder, seconds):
    def work():
        time.sleep(seconds)
        Path(folder, "thread").touch()

    atexit.register(Path(folder, "exit").touch)
    threading.Thread(target=work, name="sleepy").start()
    return "left"


@job
def hang_at_exit():
    atexit.register(time.sleep, 600)


@job
def under_way_of(url, token):
    """The worker in the job's own record, as others see it."""
    with Client(url, token=token) as store:
        seen = store.jobs.get(current_job().job_id)
        return seen and [seen.id, seen.worker]


@job(json_default=str)
def tomorrow(day):
    return [date.fromisoformat(day) + timedelta(1)]


@job(max_attempts=3)
def leave_a_set(folder):
    """It is no JSON."""
    with open(Path(folder, "calls"), "a") as calls:
        calls.write("x")
    return {1, 2}


@job
def ignore_interrupts():
    signal.signal(INTERRUPT, signal.SIG_IGN)


@job
def fork_and_return():
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    return "parent" if pid else "child"
