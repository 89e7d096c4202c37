"""The processes of jobs: each ends as it should, and takes nobody with it."""

import os
import time
from contextlib import contextmanager

import pytest

from taskstore.jobs.fork_server_link import ForkServerLink, NotPrepared
from taskstore.jobs.messages import Assignment, RunOutcome, Setup
from taskstore.jobs.processes import born
from taskstore.jobs.registry import REGISTERED
from taskstore.types.job_record import How

pytestmark = pytest.mark.once

HERE = "tests.jobs.sample"
PATIENCE_S = 30


class Server:
    """A fork server, and what it said."""

    def __init__(self, **setup):
        runner = setup.pop("runner", [REGISTERED, HERE])
        self.link = ForkServerLink(Setup(runner=runner, **setup))
        self.jobs = 0
        self._said = []

    def start(self, function, *args, **more):
        self.jobs += 1
        self.link.run(Assignment(key=self.jobs, function=f"{HERE}.{function}", job_id=self.jobs, args=args, **more))
        return self.jobs

    def hear(self, name):
        """The next message with this member."""
        while True:
            while self._said:
                message = self._said.pop(0)
                if name in message:
                    return message
            said = self.link.receive(PATIENCE_S)
            assert said, "the server has ended, or says nothing"
            self._said += said

    def outcome(self):
        return RunOutcome.of(self.hear("how"))

    def run(self, function, *args, **more):
        self.start(function, *args, **more)
        return self.outcome()


@contextmanager
def a_server(**setup):
    server = Server(**{"kill_after_ms": 300, **setup})
    try:
        yield server
    finally:
        server.link.end()


@pytest.fixture(scope="module")
def server():
    with a_server() as server:
        yield server


def test_it_brings_back_what_a_function_returns(server):
    outcome = server.run("add", 1, kwargs={"b": 2})
    assert (outcome.how, outcome.result, outcome.error) == (How.SUCCEEDED, 3, None)
    assert outcome.started <= outcome.ended
    assert server.run("add_later", 1, 2).result == 3


def test_each_job_has_a_process_of_its_own_that_knows_which_it_is(server):
    first, second = server.run("who_am_i", attempt=2), server.run("who_am_i")
    assert first.result == {"job": first.key, "attempt": 2, "pid": first.pid}
    assert first.pid not in (os.getpid(), second.pid)


def test_it_says_what_went_wrong_and_where_in_the_jobs_own_code(server):
    outcome = server.run("fail", "no such address \ud800")
    assert outcome.how == How.FAILED
    assert (outcome.error.type, outcome.error.message) == ("ValueError", "no such address \\ud800")
    assert "in fail\n" in outcome.error.traceback
    assert "tasks_app" not in outcome.error.traceback
    assert outcome.log == "about to fail\n"
    assert server.run("add").error.message.endswith("missing 1 required positional argument: 'a'")


def test_a_function_that_is_no_job_is_not_run(server):
    outcome = server.run("os.system")
    assert (outcome.how, outcome.error.type) == (How.FAILED, "taskstore.jobs.registry.UnknownFunction")
    assert "this worker does not run" in outcome.error.message


def test_a_result_that_is_no_json_is_an_error(server):
    outcome = server.run("return_a_set")
    assert (outcome.how, outcome.error.type) == (How.FAILED, "ResultNotJson")


@pytest.mark.parametrize(("code", "text"), [(0, "with code 0"), (7, "with code 7")])
def test_a_process_that_ends_without_an_answer_has_died(server, code, text):
    outcome = server.run("end_itself", code)
    assert (outcome.how, outcome.error.type) == (How.DIED, "Died")
    assert text in outcome.error.message


def test_a_process_that_is_killed_has_died(server):
    server.start("sleep", 600)
    os.kill(server.hear("started")["pid"], 9)
    assert "SIGKILL" in server.outcome().error.message


def test_a_process_that_crashes_says_where(server):
    outcome = server.run("crash")
    assert "SIGSEGV" in outcome.error.message
    assert " in crash" in outcome.log


def test_an_allocation_without_end_is_a_memory_error(server):
    outcome = server.run("eat_memory", memory_bytes=64 * 2**20)
    assert (outcome.how, outcome.error.type) == (How.FAILED, "MemoryError")
    assert "67108864 bytes" in outcome.error.message
    assert "in eat_memory" in outcome.error.traceback


def test_a_job_that_takes_too_long_is_told_so_and_can_clean_up(server, tmp_path):
    outcome = server.run("clean_up_when_told", str(tmp_path), timeout_ms=200)
    assert (outcome.how, outcome.error.type) == (How.TIMED_OUT, "TimedOut")
    assert "longer than 0.2 s" in outcome.error.message
    assert "time.sleep(600)" in outcome.error.traceback
    assert (tmp_path / "cleaned").exists()


def test_a_job_that_does_not_listen_is_killed(server):
    outcome = server.run("ignore_everything", 600, timeout_ms=200)
    assert outcome.how == How.TIMED_OUT
    assert outcome.ended - outcome.started < 10_000


def test_the_end_of_what_it_wrote_is_kept(server):
    log = server.run("say", "x" * 99, 20_000).log
    assert len(log) == 16 * 2**10
    assert log.endswith("x\n\ufffd\ufffd\n")


def test_what_a_job_started_ends_with_it(server):
    pid = server.run("leave_somebody_behind").result
    assert eventually(lambda: born(pid) is None)


def test_a_job_that_is_stopped_is_given_back(server):
    key = server.start("sleep", 600)
    server.hear("started")
    server.link.stop(key)
    assert server.outcome().how == How.GIVEN_BACK


def test_a_job_that_waits_for_its_turn_can_be_taken_back(server):
    first, second = server.start("sleep", 0.5), server.start("sleep", 0.5)
    server.hear("started")
    for key in (first, second):
        server.link.take_back(key)
    assert [(outcome.key, outcome.how) for outcome in (server.outcome(), server.outcome())] == [
        (second, How.GIVEN_BACK),
        (first, How.SUCCEEDED),
    ]


def test_a_process_may_run_several_jobs():
    with a_server(jobs_per_process=2) as server:
        pids = [server.run("who_am_i").pid for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_processes_may_be_fresh_interpreters():
    with a_server(spawn=True) as server:
        assert server.run("add", 1, 2).result == 3
        assert server.run("end_itself", 3).how == How.DIED


@pytest.mark.parametrize(
    ("module", "text", "spawn"),
    [
        ("no_such_module", r"^ModuleNotFoundError: No module named 'no_such_module'$", False),
        ("no_such_module", r"^ModuleNotFoundError: No module named 'no_such_module'$", True),
        ("tests.jobs.broken", r"^NameError: .*broken.py, line 3\)$", False),
        ("json", r"^no function in json is a job: decorate functions with @job$", False),
        ("tests.jobs.breaking_off", r"^its process ended with code 3 before .*\nI can't be imported$", True),
    ],
)
def test_it_says_why_there_is_nothing_to_run(module, text, spawn):
    with pytest.raises(NotPrepared, match=text):
        Server(runner=[REGISTERED, module], spawn=spawn)


def test_its_processes_end_with_it():
    with a_server() as server:
        server.start("sleep", 600)
        pid = server.hear("started")["pid"]
    assert eventually(lambda: born(pid) is None)


def test_when_a_job_kills_it_that_is_heard():
    with a_server() as server:
        server.start("kill_its_parent")
        pid = server.hear("started")["pid"]
        assert server.link.receive(PATIENCE_S) is None
        assert eventually(lambda: born(pid) is None)


def test_after_its_end_nothing_more_is_heard_of_it():
    """Whoever has waited for the store until then listens once more."""
    with a_server() as server:
        pass
    assert server.link.receive(0) is None


def eventually(condition):
    until = time.monotonic() + PATIENCE_S
    while not (met := condition()) and time.monotonic() < until:
        time.sleep(0.01)
    return met
