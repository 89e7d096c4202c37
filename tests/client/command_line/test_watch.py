"""`watch ID`, in a process of its own as people start it."""

import json
import os
import pty
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from lab.testing import PROJECT
from tasks_app.models import Scope, Task
from taskstore import Change
from taskstore.types.command_record import Command, CommandStatus, Output, Run, new_command_task
from taskstore.types.job_record import JobRecord, JobStatus, finished_group, new_task
from tests.client.patience import wait_for

pytestmark = pytest.mark.once

PATIENCE_S = 20.0


class Watched:
    """What the process writes, read as it comes."""

    def __init__(self, process, output):
        self.process, self._output, self.text = process, output, ""

    def wait_for(self, text):
        until = time.monotonic() + PATIENCE_S
        while text not in self.text:
            assert time.monotonic() < until, self.text
            self._read()

    def end(self):
        """The exit code, and all that it wrote to its error output."""
        code = self.process.wait(PATIENCE_S)
        while self._read():
            pass
        return code, self.process.stderr.read().decode()

    def _read(self):
        try:
            some = os.read(self._output, 2**16)
        except OSError:  # The terminal is gone with its last process.
            return False
        self.text += some.decode(errors="replace")
        return bool(some)


@pytest.fixture
def watching(served, token_of):
    secret = token_of(Scope.READ)

    @contextmanager
    def begin(*arguments, terminal=False):
        ours, theirs = pty.openpty() if terminal else os.pipe()
        words = [sys.executable, "-m", "taskstore_project", "watch", *map(str, arguments), "--every", "50ms"]
        environment = {**os.environ, "TASKSTORE_URL": served.url, "TASKSTORE_TOKEN": secret, "TERM": "xterm"}
        process = subprocess.Popen(words, cwd=PROJECT, env=environment, stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        try:
            yield Watched(process, ours)
        finally:
            process.kill()
            process.wait()
            if process.stderr:
                process.stderr.close()
            os.close(ours)

    return begin


def test_a_task_is_watched_until_its_worker_has_done_it(watching, ann):
    task = ann.add("mail")
    with watching(task.id) as watched:
        watched.wait_for(f"task {task.id}: ready\n")
        [held] = ann.claim("mail")
        watched.wait_for(f"task {task.id}: claimed\n")
        ann.report_progress(held.id, 0.42, "page 7 of 20")
        watched.wait_for(f"task {task.id}: 42 % page 7 of 20\n")
        [renewed] = ann.commit(updates=[Change(id=held.id, timespec_ms=-60_000)])
        ann.report_progress(held.id, 0.5)
        watched.wait_for(f"task {task.id}: 50 %\n")
        ann.delete(renewed)
        assert watched.end() == (0, "")
    assert watched.text.endswith(f"task {task.id} is done\n")


def test_a_bar_is_drawn_on_a_terminal(watching, ann):
    task = ann.add("mail")
    [held] = ann.claim("mail")
    ann.report_progress(held.id, 0.42, "page [7] of 20")
    with watching(task.id, terminal=True) as watched:
        watched.wait_for("42%")
        watched.wait_for("page [7] of 20")
        watched.wait_for("\u2501")
        ann.delete(held)
        assert watched.end()[0] == 0
    assert "100%" in watched.text


def test_a_job_is_watched_until_it_has_succeeded(watching, ann):
    [job] = ann.commit(adds=[new_task(JobRecord(function="reports.build"))])
    [held] = ann.claim("jobs/default")
    ann.report_progress(held.id, 0.25, "reading")
    with watching(job.id, "--json") as watched:
        watched.wait_for("reading")
        ann.commit(updates=[Change(id=held.id, group=finished_group("default", JobStatus.SUCCEEDED), release=True)])
        assert watched.end() == (0, "")
    *_, before, last = map(json.loads, watched.text.splitlines())
    assert (before["state"], before["progress"]["done"], before["progress"]["text"]) == ("started", 0.25, "reading")
    assert (last["state"], last["end"]) == ("succeeded", f"job {job.id} succeeded")


def test_a_job_that_has_failed_says_why(command, ann):
    [job] = ann.commit(adds=[new_task(JobRecord(function="reports.build"))])
    ann.commit(updates=[Change(id=job.id, group=finished_group("default", JobStatus.FAILED), error="no", release=True)])
    told = command("watch", str(job.id))
    assert (told.code, told.err) == (1, f"taskstore: job {job.id} failed: unknown error\n")


def test_a_command_is_watched_by_its_id_and_project(command, ann):
    run = Run(worker="ann", started=1, ended=2, exit_code=3, err=Output.of(b"no disk\nended with 3\n"))
    made = Command(
        id="1000", cmd="backup", created=1000, until=2**31, expected_duration=1, max_fails=1, fails=1, run=run
    )
    Task.objects.commit(owner=1, adds=[new_command_task("nightly", made, CommandStatus.FAILED_COUNT)])
    told = command("watch", "1000", "--project", "nightly")
    assert (told.code, told.err) == (1, "taskstore: command 1000 failed: no disk\n")
    assert command("watch", "2000", "--project", "nightly").code == 1


def test_what_was_cancelled_has_not_succeeded(command, ann):
    job = ann.jobs.enqueue("a.b")
    ann.cancel([job.id], "ordered twice")
    end = f"job {job.id} was cancelled by token:Ann: ordered twice"
    for words in (["watch"], ["job", "wait"]):
        told = command(*words, str(job.id))
        assert (told.code, end in told.err) == (1, True)
    made = Command(id="3000", cmd="true")
    Task.objects.commit(owner=0, adds=[new_command_task("nightly", made, CommandStatus.CANCELLED)])
    told = command("watch", "3000", "--project", "nightly")
    assert (told.code, "command 3000 was cancelled" in told.err) == (1, True)


def test_what_was_never_there_is_not_waited_for(command):
    told = command("watch", "999999")
    assert (told.code, told.err) == (1, "taskstore: task 999999 does not exist\n")


def test_a_purge_is_no_success(command, ann):
    task = ann.add("mail")
    ann.bulk_start(ann.bulk_preview("purge", ids=[task.id]))
    wait_for(lambda: ann.task(task.id) is None, "the purge")
    told = command("watch", str(task.id))
    assert (told.code, told.err) == (1, f"taskstore: task {task.id} was purged by token:Ann\n")


def test_a_number_among_names_is_a_group(command, ann):
    ann.add("2026")
    assert "2026" in command("watch", "2026", "mail", "--times", "1").out
    assert command("watch", "1", "--times", "1").code == 2
    assert command("watch", "1", "2", "--project", "nightly").code == 2
