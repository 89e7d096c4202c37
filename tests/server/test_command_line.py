"""The commands that ask a server, as whoever types them on its machine notices: real processes."""

import json
import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from taskstore_project.testing import PROJECT

from .harness import END_SECONDS

pytestmark = pytest.mark.once


def on_terminal(store, *arguments, **variables):
    """What a command writes to a terminal of 80 columns."""
    leader, follower = pty.openpty()
    environment = {**store._environment, "TERM": "xterm-256color", "COLUMNS": "80", **variables}
    command = [sys.executable, "manage.py", *arguments]
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stdin=follower, stdout=follower, stderr=follower):
        os.close(follower)
        told = b"".join(pieces_of(leader))
    os.close(leader)
    return told.decode()


def pieces_of(leader):
    try:
        while piece := os.read(leader, 10_000):
            yield piece
    except OSError:  # Linux says so that nobody else has it open.
        return


def test_they_find_the_server_of_this_machine(store):
    with store.up():
        assert store.manage("add", "mail", "x" * 200).stdout == "added task 1 to mail\n"
        assert store.manage("groups").stdout == "mail\n"
        seen = on_terminal(store, "ls", "mail")
        assert "\x1b[" in seen
        plain = on_terminal(store, "ls", "mail", NO_COLOR="1")
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain)
        assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", plain).splitlines())) <= 80
        completion = {"_TASKSTORE_COMPLETE": "bash_complete", "COMP_WORDS": "taskstore ls m", "COMP_CWORD": "2"}
        assert store.manage(**completion).stdout == "plain,mail\n"
        completion |= {"COMP_WORDS": "taskstore to", "COMP_CWORD": "1"}
        assert store.manage(**completion).stdout == "plain,token\n"
    away = store.manage("groups", "--url", "http://127.0.0.1:1")
    assert (away.returncode, away.stdout, away.stderr.count("\n")) == (3, "", 1)


def test_help_tells_of_both_kinds_of_commands(empty_place):
    told = empty_place.manage("--help")
    assert told.returncode == 0
    for command in ("claim", "history", "completion", "[taskstore_project]", "migrate", "token"):
        assert re.search(rf"^ *{re.escape(command)}( |$)", told.stdout, re.MULTILINE), command
    assert "Usage: taskstore claim" in empty_place.manage("help", "claim").stdout
    assert "usage:" in empty_place.manage("help", "token").stdout
    assert empty_place.manage("completion", "fish").stdout.startswith("function ")


def test_a_function_is_enqueued_run_and_its_result_read(store):
    with store.up():
        worker = store.begin("work", "tests.jobs.sample", "--processes", "1", "--name", "ann")
        try:
            done = store.manage("job", "enqueue", "tests.jobs.sample.add", "1", "--with", "b=41", "--wait")
            assert (done.returncode, done.stdout) == (0, "42\n")
            failed = store.manage("job", "enqueue", "tests.jobs.sample.fail", "no luck", "--wait")
            assert (failed.returncode, failed.stderr.endswith("failed: ValueError: no luck\n")) == (1, True)
            [job] = map(json.loads, store.manage("job", "list", "--status", "failed", "--json").stdout.splitlines())
            told = store.manage("job", "show", str(job["id"])).stdout
            assert re.search(r"^worker +ann *$", told, re.MULTILINE)
            assert "raise ValueError(text)\nValueError: no luck\n\nIt wrote:\nabout to fail\n" in told
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(END_SECONDS) == 0
            assert "ann works for jobs/default, at most 1 at a time" in worker.stdout.read()
        finally:
            worker.kill()
            worker.communicate()


def test_a_worker_without_jobs_says_so(empty_place):
    assert "say the module" in empty_place.manage("work", "./reports.py").stderr
    told = empty_place.manage("work", "json")
    assert told.returncode == 2
    assert told.stderr.splitlines()[-1].endswith("no function of json is a job: put @job on those that are")


def test_what_a_command_wrote_reaches_a_terminal_escaped_and_a_pipe_as_it_is(store, tmp_path):
    folder = tmp_path / "files"
    (folder / "completed").mkdir(parents=True)
    (folder / "completed/1_0.task").write_text("1_0\n1\n2\n1\n1\n0\ntrue\nann\n1\n2\n")
    (folder / "completed/1_0.out").write_bytes(b"\x1b[2Jred\n")
    with store.up("--commands"):
        assert store.manage("commands", "import", str(folder)).returncode == 0
        assert on_terminal(store, "commands", "results", "1_0") == "\\x1b[2Jred\r\n"
        assert store.manage("commands", "results", "1_0").stdout == "\x1b[2Jred\n"
