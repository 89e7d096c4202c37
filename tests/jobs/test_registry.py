"""What `job` makes of a function."""

import os
import re
import subprocess
import sys
from datetime import timedelta

import pytest

from lab.testing import PROJECT
from taskstore import InvalidInput, job
from taskstore.types.job_record import JobOptions, OnLost

from . import sample


@job(queue="mail", priority=5, max_attempts=3, timeout=timedelta(seconds=2), on_lost="fail")
def send(client, self="me"):
    return [client, self]


def test_its_options_are_those_of_its_jobs():
    assert send.options == JobOptions(max_attempts=3, timeout_ms=2_000, on_lost=OnLost.FAIL)
    assert send.using(timeout=None, backoff=timedelta(minutes=1)).options.backoff_ms == 60_000
    assert (send.queue, send.priority, send.using(queue="slow").queue) == ("mail", 5, "slow")


def decorated(function):
    def wrapper(*args):
        return function(*args)

    return wrapper


def one():
    """The first of two functions with this name."""


FIRST = one


def one():  # type: ignore[no-redef]
    """The second."""


def test_a_name_belongs_to_one_function():
    """A worker would run another function than was meant."""
    job(FIRST)
    job(FIRST)  # As when its module is reloaded.
    with pytest.raises(ValueError, match=r"test_registry.one is the name of another job already, at .*registry.py"):
        job(one)
    for function in (decorated(one), decorated(FIRST), lambda: None):
        with pytest.raises(ValueError, match=r"can't find .*<.*define the function at the top level"):
            job(function)


TYPED = """
from taskstore import Client, job

@job
def add(a: int, b: int) -> int:
    return a + b

@job(max_attempts=3)
def later(a: int) -> None: ...

def enqueue(client: Client) -> int:
    client.jobs.enqueue_many([add.call(1, 2), later.call(a=3)])
    add.enqueue(client, 1, b=2)
    later.using(queue="slow").enqueue(client, 5)
    add.enqueue(client, 1, "two")
    later.call()
    return add(1, 2)
"""


def test_types_of_arguments_are_checked(tmp_path):
    (tmp_path / "typed.py").write_text(TYPED)
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "typed.py"]
    environment = {**os.environ, "MYPYPATH": str(PROJECT)}
    found = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert [line.partition(": error: ")[2] for line in found.stdout.splitlines() if ": error: " in line] == [
        'Argument 3 to "enqueue" of "JobFunction" has incompatible type "str"; expected "int"  [arg-type]',
        'Missing positional argument "a" in call to "call" of "JobFunction"  [call-arg]',
    ], found.stdout


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"queue": "a/b"}, "the queue 'a/b' must"),
        ({"max_tries": 3}, "max_tries is not a known option: use one of max_attempts, backoff, timeout, "),
        ({"on_lost": "perhaps"}, 'on_lost must be one of retry, fail, not "perhaps"'),
        ({"max_attempts": 0}, "max_attempts must be between 1 and 1000000, not 0"),
        ({"max_lost": 0}, "max_lost must be between 1 "),
        ({"memory_bytes": 100}, "memory_bytes must be between 1048576 "),
        ({"timeout": "30"}, "timeout must be a timedelta or a number of seconds, at least a millisecond, not '30'"),
        ({"timeout": timedelta()}, "timeout must be a timedelta or a number of seconds, at least a millisecond, not "),
        ({"timeout": float("inf")}, "timeout must be a timedelta or "),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options, problem):
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(problem)}"):
        job(**options)(lambda: None)


def test_a_duration_may_be_in_seconds():
    function = job(timeout=1.5)(FIRST)
    assert function.options == JobOptions(timeout_ms=1_500)
    assert function.using(timeout=timedelta(minutes=1), backoff=2).options == JobOptions(
        timeout_ms=60_000, backoff_ms=2_000
    )
    assert function.using(timeout=None).options == JobOptions()


def test_arguments_may_have_any_name(queue):
    enqueued = send.enqueue(queue.store, client="ann", self="bob")
    assert enqueued.kwargs == {"client": "ann", "self": "bob"}
    assert send("ann") == ["ann", "me"]


def test_many_are_enqueued_in_one_commit(queue):
    first, second, third = queue.store.jobs.enqueue_many(
        [sample.add.call(1, 2), sample.add.using(queue="slow", priority=7).call(3, b=4), send.call("ann")]
    )
    jobs = [queue.store.jobs.get(id) for id in (first, second, third)]
    assert [(each.queue, each.priority) for each in jobs] == [("default", 0), ("slow", 7), ("mail", 5)]
    assert jobs[2].options == send.options
    with queue.worker():
        assert queue.store.jobs.wait(first, timeout_s=30).result == 3
    before = len(queue.store.jobs.list().jobs)
    with pytest.raises(InvalidInput, match=r"jobs\[1\].args\[0\]: must be valid JSON"):
        queue.store.jobs.enqueue_many([sample.add.call(1), sample.add.call({1})])
    assert len(queue.store.jobs.list().jobs) == before


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_options_of_the_function_hold_where_none_are_given(queue, start):
    """Over REST, from the command line and in schedules nothing knows the function."""
    given = queue.store.jobs.enqueue("tests.jobs.sample.fail", ["oh"], options=JobOptions(max_attempts=1))
    other = queue.store.jobs.enqueue("tests.jobs.sample.fail", ["oh"], options=JobOptions(backoff_ms=1))
    assert given.options.max_attempts == 1
    assert other.options.max_attempts is None
    with queue.worker(start=start):
        found = [queue.store.jobs.wait(each.id, timeout_s=30, raises=False) for each in (given, other)]
    assert [len(each.attempts) for each in found] == [1, 2]
    assert (found[1].options.max_attempts, found[1].options.backoff_ms, found[1].options.max_lost) == (2, 1, 3)
