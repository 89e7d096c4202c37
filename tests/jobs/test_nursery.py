"""The processes of jobs: each ends as it should, and takes nobody with it."""

import os
import queue
import time
from contextlib import contextmanager

import pytest

from taskstore.jobs.messages import Assignment, Nursing, RunOutcome
from taskstore.jobs.nursery_link import NotPrepared, NurseryLink
from taskstore.jobs.processes import born
from taskstore.jobs.registry import REGISTERED
from taskstore.types.job_record import How

pytestmark = pytest.mark.once

HERE = "tests.jobs.sample"
PATIENCE_S = 30


class Nursed:
    """A nursery, and what it said."""

    def __init__(self, **setup):
        self.said: queue.SimpleQueue = queue.SimpleQueue()
        runner = setup.pop("runner", [REGISTERED, HERE])
        self.link = NurseryLink(Nursing(runner=runner, **setup), lambda link, message: self.said.put(message))
        self.link.prepare()
        self.jobs = 0
        self.has_ended = False

    def start(self, function, *args, **more):
        self.jobs += 1
        self.link.run(Assignment(key=self.jobs, function=f"{HERE}.{function}", job_id=self.jobs, args=args, **more))
        return self.jobs

    def hear(self, name):
        """The next message with this member."""
        while not self.has_ended:
            message = self.said.get(timeout=PATIENCE_S)
            self.has_ended = message is None
            if message and name in message:
                return message
        raise AssertionError("the nursery has ended")

    def outcome(self):
        return RunOutcome.of(self.hear("how"))

    def run(self, function, *args, **more):
        self.start(function, *args, **more)
        return self.outcome()


@contextmanager
def a_nursery(**setup):
    nursed = Nursed(**{"kill_after_ms": 300, **setup})
    try:
        yield nursed
    finally:
        nursed.link.end()


@pytest.fixture(scope="module")
def nursed():
    with a_nursery() as nursed:
        yield nursed


def test_it_brings_back_what_a_function_returns(nursed):
    outcome = nursed.run("add", 1, kwargs={"b": 2})
    assert (outcome.how, outcome.result, outcome.error) == (How.SUCCEEDED, 3, None)
    assert outcome.started <= outcome.ended
    assert nursed.run("add_later", 1, 2).result == 3


def test_each_job_has_a_process_of_its_own_that_knows_which_it_is(nursed):
    first, second = nursed.run("who_am_i", attempt=2), nursed.run("who_am_i")
    assert first.result == {"job": first.key, "attempt": 2, "pid": first.pid}
    assert first.pid not in (os.getpid(), second.pid)


def test_it_says_what_went_wrong_and_where_in_the_jobs_own_code(nursed):
    outcome = nursed.run("fail", "no such address \ud800")
    assert outcome.how == How.FAILED
    assert (outcome.error.type, outcome.error.message) == ("ValueError", "no such address \\ud800")
    assert "in fail\n" in outcome.error.traceback
    assert "tasks_app" not in outcome.error.traceback
    assert outcome.log == "about to fail\n"
    assert nursed.run("add").error.message.endswith("missing 1 required positional argument: 'a'")


def test_a_function_that_is_no_job_is_not_run(nursed):
    outcome = nursed.run("os.system")
    assert (outcome.how, outcome.error.type) == (How.FAILED, "taskstore.jobs.registry.UnknownFunction")
    assert "is not among what this worker runs" in outcome.error.message


def test_a_result_that_is_no_json_is_an_error(nursed):
    outcome = nursed.run("return_a_set")
    assert (outcome.how, outcome.error.type) == (How.FAILED, "ResultNotJson")


@pytest.mark.parametrize(("code", "text"), [(0, "with code 0"), (7, "with code 7")])
def test_a_process_that_ends_without_an_answer_has_died(nursed, code, text):
    outcome = nursed.run("end_itself", code)
    assert (outcome.how, outcome.error.type) == (How.DIED, "Died")
    assert text in outcome.error.message


def test_a_process_that_is_killed_has_died(nursed):
    nursed.start("sleep", 600)
    os.kill(nursed.hear("started")["pid"], 9)
    assert "SIGKILL" in nursed.outcome().error.message


def test_a_process_that_crashes_says_where(nursed):
    outcome = nursed.run("crash")
    assert "SIGSEGV" in outcome.error.message
    assert " in crash" in outcome.log


def test_an_allocation_without_end_is_a_memory_error(nursed):
    outcome = nursed.run("eat_memory", memory_bytes=64 * 2**20)
    assert (outcome.how, outcome.error.type) == (How.FAILED, "MemoryError")
    assert "67108864 bytes" in outcome.error.message
    assert "in eat_memory" in outcome.error.traceback


def test_a_job_that_takes_too_long_is_told_so_and_can_clean_up(nursed, tmp_path):
    outcome = nursed.run("clean_up_when_told", str(tmp_path), timeout_ms=200)
    assert (outcome.how, outcome.error.type) == (How.TIMED_OUT, "TimedOut")
    assert "longer than 0.2 s" in outcome.error.message
    assert "time.sleep(600)" in outcome.error.traceback
    assert (tmp_path / "cleaned").exists()


def test_a_job_that_does_not_listen_is_killed(nursed):
    outcome = nursed.run("ignore_everything", 600, timeout_ms=200)
    assert outcome.how == How.TIMED_OUT
    assert outcome.ended - outcome.started < 10_000


def test_the_end_of_what_it_wrote_is_kept(nursed):
    log = nursed.run("say", "x" * 99, 20_000).log
    assert len(log) == 16 * 2**10
    assert log.endswith("x\n\ufffd\ufffd\n")


def test_what_a_job_started_ends_with_it(nursed):
    pid = nursed.run("leave_somebody_behind").result
    assert eventually(lambda: born(pid) is None)


def test_a_job_that_is_stopped_is_given_back(nursed):
    key = nursed.start("sleep", 600)
    nursed.hear("started")
    nursed.link.stop(key)
    assert nursed.outcome().how == How.GIVEN_BACK


def test_a_job_that_waits_for_its_turn_can_be_taken_back(nursed):
    first, second = nursed.start("sleep", 0.5), nursed.start("sleep", 0.5)
    nursed.hear("started")
    for key in (first, second):
        nursed.link.take_back(key)
    assert [(outcome.key, outcome.how) for outcome in (nursed.outcome(), nursed.outcome())] == [
        (second, How.GIVEN_BACK),
        (first, How.SUCCEEDED),
    ]


def test_a_process_may_run_several_jobs():
    with a_nursery(jobs_per_process=2) as nursed:
        pids = [nursed.run("who_am_i").pid for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_processes_may_be_fresh_interpreters():
    with a_nursery(spawn=True) as nursed:
        assert nursed.run("add", 1, 2).result == 3
        assert nursed.run("end_itself", 3).how == How.DIED


@pytest.mark.parametrize(
    ("module", "text", "spawn"),
    [
        ("no_such_module", r"^ModuleNotFoundError: No module named 'no_such_module'$", False),
        ("no_such_module", r"^ModuleNotFoundError: No module named 'no_such_module'$", True),
        ("tests.jobs.broken", r"^NameError: .*broken.py, line 3\)$", False),
        ("json", r"^no function of json is a job: put @job on those that are$", False),
    ],
)
def test_it_says_why_there_is_nothing_to_run(module, text, spawn):
    with pytest.raises(NotPrepared, match=text):
        Nursed(runner=[REGISTERED, module], spawn=spawn)


def test_its_processes_end_with_it():
    with a_nursery() as nursed:
        nursed.start("sleep", 600)
        pid = nursed.hear("started")["pid"]
    assert eventually(lambda: born(pid) is None)


def test_when_a_job_kills_it_that_is_heard():
    with a_nursery() as nursed:
        nursed.start("kill_its_parent")
        pid = nursed.hear("started")["pid"]
        assert nursed.said.get(timeout=PATIENCE_S) is None
        assert eventually(lambda: born(pid) is None)


def eventually(condition):
    until = time.monotonic() + PATIENCE_S
    while not (met := condition()) and time.monotonic() < until:
        time.sleep(0.01)
    return met
