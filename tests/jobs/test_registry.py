"""What `job` makes of a function."""

from datetime import UTC, datetime, timedelta

import pytest

from taskstore import JobStatus, job
from taskstore.jobs.registry import functions
from taskstore.types.job_record import JobOptions, OnLost

from . import sample


def test_a_function_stays_a_function():
    assert sample.add(1, b=2) == 3


def test_its_options_are_those_of_its_jobs():
    @job(queue="mail", priority=5, max_attempts=3, timeout=timedelta(seconds=2), on_lost="fail")
    def send():
        """Not run."""

    try:
        assert send.options == JobOptions(max_attempts=3, timeout_ms=2_000, on_lost=OnLost.FAIL)
        assert send.using(timeout=None, backoff=timedelta(minutes=1)).options.backoff_ms == 60_000
        assert (send.queue, send.priority, send.using(queue="slow").queue) == ("mail", 5, "slow")
    finally:
        del functions[send.path]


@pytest.mark.parametrize("options", [{"queue": "a/b"}, {"on_lost": "perhaps"}, {"max_tries": 3}])
def test_an_option_that_makes_no_sense_is_refused(options):
    with pytest.raises((ValueError, TypeError)):
        job(**options)(lambda: None)


def test_a_timeout_in_seconds_is_told_what_to_be():
    with pytest.raises(TypeError, match=r"timeout must be a timedelta, such as .*, not 30"):
        job(timeout=30)(lambda: None)


def test_it_is_enqueued_and_its_result_is_read(queue):
    enqueued = sample.add.enqueue(queue.store, 1, b=2)
    later = sample.add.using(at=datetime.now(UTC) + timedelta(hours=1), priority=7).enqueue(queue.store, 1)
    assert (later.status, later.priority) == (JobStatus.SCHEDULED, 7)
    with queue.worker():
        assert queue.store.jobs.wait(enqueued.id, timeout_s=30).result == 3
    assert queue.store.jobs.get(later.id).status == JobStatus.SCHEDULED
