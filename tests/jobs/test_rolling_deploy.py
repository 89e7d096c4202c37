"""Ten deploys, forth and back under load: functions are renamed, removed and added, and nothing fails for good."""

import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

from lab.testing import PROJECT
from taskstore.types.job_record import JobOptions, JobRecord, JobStatus, new_task
from tests.jobs.workers import eventually

DEPLOYS, EVERY_S, PER_S = 10, 2.0, 40
LEASE_S = 30

# They speak HTTP alone.
pytestmark = pytest.mark.once

VERSION = """
from taskstore import job

@job
def common(at):
    return at

@job
def {only}(at):
    return at
"""


@contextmanager
def worker(queue, folder, version, number):
    """A worker of a version, which is told to stop at the end."""
    code = (
        "from taskstore.jobs.worker import run_worker; "
        f"run_worker(['shop_tasks'], processes=1, jobs_per_process=50, name='{version}-{number}')"
    )
    environment = {"TASKSTORE_URL": queue.store.url, "TASKSTORE_TOKEN": queue.token}
    environment |= {"PYTHONPATH": f"{folder / version}:{PROJECT}", "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=folder, env=environment)
    try:
        assert eventually(lambda: f"{version}-{number}" in [each.name for each in queue.store.clients()])
        yield
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()


def test_ten_deploys_forth_and_back_lose_nothing(queue, tmp_path):
    for version, only in (("old", "removed"), ("new", "added")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "shop_tasks.py").write_text(VERSION.format(only=only))
    functions = [f"shop_tasks.{name}" for name in ("common", "removed", "added")]
    jobs, is_over = dict[int, str](), threading.Event()

    def load():
        while not is_over.wait(1 / PER_S):
            at_ms = round(time.time() * 1_000)
            records = [JobRecord(function=name, args=[at_ms], options=JobOptions(max_attempts=1)) for name in functions]
            made = queue.store.commit(adds=[new_task(record) for record in records])
            jobs.update({task.origin: record.function for task, record in zip(made, records, strict=True)})

    loading = threading.Thread(target=load)
    with ExitStack() as stack:
        stack.callback(is_over.set)
        running = [stack.enter_context(ExitStack()) for _ in range(2)]
        for number, each in enumerate(running):
            each.enter_context(worker(queue, tmp_path, "old", number))
        loading.start()
        for deploy in range(1, DEPLOYS + 1):
            version = ("old", "new")[deploy % 2]
            for number, each in enumerate(running):  # One after the other: both versions run meanwhile.
                time.sleep(EVERY_S / 2)
                each.close()
                each.enter_context(worker(queue, tmp_path, version, number + 10 * deploy))
        is_over.set()
        loading.join()
        running[0].close()
        running[0].enter_context(worker(queue, tmp_path, "new", 1_000))  # Each version is there.
        assert eventually(lambda: not unfinished(queue), 90), unfinished(queue)
    done = all_of(queue, JobStatus.SUCCEEDED)
    assert {job.id for job in done} == jobs.keys()
    assert not all_of(queue, JobStatus.FAILED)
    waits_s = sorted((job.attempts[-1].started - job.args[0]) / 1_000 for job in done if jobs[job.id] == functions[0])
    median_s = waits_s[len(waits_s) // 2]
    print(f"{len(done)} jobs, {len(waits_s)} known: longest wait {waits_s[-1]:.3f} s, median {median_s:.3f} s")
    assert waits_s[-1] < LEASE_S, "a worker that stopped has left a lease behind"


def unfinished(queue):
    return len(list(queue.store.group("jobs/default", owned=True)))


def all_of(queue, status):
    found, after = [], None
    while True:
        page = queue.store.jobs.list(status=status, limit=200, after=after)
        found += page.jobs
        if (after := page.after) is None:
            return found
