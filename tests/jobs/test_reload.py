"""`taskstore work --reload`: each change of the code has another worker run, and nothing is lost by it."""

import logging
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from lab.testing import PROJECT
from taskstore.types.job_record import JobRecord, new_task
from taskstore.worker.engine import SAME_S
from taskstore_project.command_table import program

from .workers import eventually

CODE = """
import pathlib, time
from taskstore import job

@job(max_attempts=1)
def tell(waits=False):
    pathlib.Path("begun").touch()
    while waits and not pathlib.Path("go").exists():
        time.sleep(0.01)
    return "the first"
"""


class Worker:
    def __init__(self, folder, queue):
        self.folder, self.store = folder, queue.store
        self.file = folder / "shop.py"
        self.file.write_text(CODE)
        self.log = folder / "log"
        command = [sys.executable, "-m", "taskstore_project", "work", "shop", "--reload", "--processes", "1"]
        variables = {"PYTHONPATH": str(PROJECT), "TASKSTORE_URL": queue.store.url, "TASKSTORE_TOKEN": queue.token}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=folder, env={**os.environ, **variables}, stderr=log)
        self.sees("is processing")

    def sees(self, words, times=1):
        assert eventually(lambda: self.log.read_text().count(words) >= times), self.log.read_text()

    def enqueue(self, *args):
        [task] = self.store.commit(adds=[new_task(JobRecord(function="shop.tell", args=args))])
        return task.origin

    def result(self, job_id):
        return self.store.jobs.wait(job_id, 30).result

    def change(self, old, new):
        self.file.write_text(self.file.read_text().replace(old, new))


@pytest.fixture
def worker(tmp_path, queue):
    worker = Worker(tmp_path, queue)
    yield worker
    worker.process.kill()
    worker.process.wait()


def test_a_change_has_new_code_run_and_what_runs_end_first(worker):
    running = worker.enqueue(True)
    assert eventually((worker.folder / "begun").exists)
    worker.change("the first", "the second one")
    worker.sees("1 running, 8 s to finish")
    later = worker.enqueue()
    (worker.folder / "go").touch()
    assert [worker.result(each) for each in (running, later)] == ["the first", "the second one"]
    assert len(worker.store.jobs.get(running).attempts) == 1

    worker.change("def tell", "def tell(:")
    worker.sees("SyntaxError")
    worker.sees("the worker has ended; it starts again when code changes")
    worker.change("def tell(:", "def tell")
    assert worker.result(worker.enqueue()) == "the second one"

    worker.process.send_signal(signal.SIGINT)
    assert worker.process.wait(30) == 0
    assert worker.log.read_text().count("starts again when") == 1


def test_it_starts_and_restarts_in_a_folder_that_is_never_quiet(tmp_path, queue):
    script = "import time\nwhile True:\n open('noise', 'a').write('x')\n time.sleep(0.05)"
    noise = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path)
    worker = Worker(tmp_path, queue)
    try:
        worker.change("the first", "the second one")
        worker.sees("is processing", times=2)
        assert worker.result(worker.enqueue()) == "the second one"
    finally:
        for process in (noise, worker.process):
            process.kill()
            process.wait()


def test_what_is_no_code_changes_nothing(worker):
    for name in ("notes.txt", "__pycache__/shop.py", ".venv/shop.py"):
        (worker.folder / name).parent.mkdir(exist_ok=True)
        (worker.folder / name).write_text("text")
    (worker.folder / "other.py").write_text("")
    worker.sees("other.py has changed")
    worker.sees("is processing", times=2)
    assert worker.log.read_text().count("has changed") == 1


def test_a_second_signal_ends_it_at_once(worker):
    running = worker.enqueue(True)
    assert eventually((worker.folder / "begun").exists)
    worker.process.send_signal(signal.SIGINT)
    worker.sees("1 running, 8 s to finish")
    time.sleep(SAME_S + 1)
    worker.process.send_signal(signal.SIGINT)
    assert worker.process.wait(5) == 128 + signal.SIGINT
    assert worker.store.jobs.get(running).status == "started"


def test_a_signal_to_all_processes_is_one(worker):
    running = worker.enqueue(True)
    assert eventually((worker.folder / "begun").exists)
    for pid in (*children(worker.process.pid), worker.process.pid):
        os.kill(pid, signal.SIGTERM)
    worker.sees("1 running, 8 s to finish")
    (worker.folder / "go").touch()
    assert worker.process.wait(30) == 0
    assert worker.result(running) == "the first"
    assert "has ended" not in worker.log.read_text()


def test_a_worker_dies_with_the_process_that_watches(worker):
    [child] = children(worker.process.pid)
    worker.process.kill()
    assert eventually(lambda: not os.path.exists(f"/proc/{child}"))


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return list(map(int, file.read().split()))


@pytest.mark.once
def test_it_says_what_is_missing(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "taskstore")  # It is reset at the end: the command changes it.
    told = CliRunner().invoke(program(), ["work", "shop", "--reload", "--burst"])
    assert (told.exit_code, told.stderr.splitlines()[-1]) == (2, "Error: give either --reload or --burst")
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    told = CliRunner().invoke(program(), ["work", "shop", "--reload"])
    why = "taskstore: --reload needs watchfiles: pip install 'taskstore[reload]'\n"
    assert (told.exit_code, told.stderr) == (2, why)
