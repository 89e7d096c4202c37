"""A worker of jobs: real processes, a real server."""

import re
import time

import pytest

from tasks_app.models import PausedGroup
from taskstore import Client
from taskstore.types.job_record import How, JobRecord, JobStatus, OnLost, queue_group
from taskstore.worker.process_tree import born
from tests.client.breaking import proxy_to

from .workers import PATIENCE_S, SAMPLE, Queue, eventually

# They speak HTTP alone. test_killing.py has workers on each database.
pytestmark = pytest.mark.once


def test_what_a_function_returns_is_kept(queue):
    job = queue.enqueue("add", 1, 2)
    with queue.worker(name="ann") as worker:
        record = queue.finished(job)
    assert (record.result, record.error) == (3, None)
    [attempt] = record.attempts
    assert (attempt.how, attempt.worker, attempt.final) == (How.SUCCEEDED, worker.name, True)
    assert queue.status(job) == JobStatus.SUCCEEDED
    assert queue.task(job).labels == {"function": "tests.jobs.sample.add"}


def test_a_failure_is_tried_again_and_then_reported(queue, caplog):
    caplog.set_level("INFO", logger="taskstore")
    job = queue.enqueue("fail", "no such address", max_attempts=2, backoff_ms=50)
    with queue.worker():
        record = queue.finished(job)
    assert [attempt.how for attempt in record.attempts] == [How.FAILED, How.FAILED]
    assert [attempt.final for attempt in record.attempts] == [False, True]
    assert (record.error.type, record.log) == ("ValueError", "about to fail\n")
    assert queue.task(job).error == "ValueError: no such address"
    said = re.compile(rf"job {job} of default, tests.jobs.sample.fail: failed after .* ValueError: no such address")
    assert sum(bool(said.match(message)) for message in caplog.messages) == 2
    assert queue.status(job) == JobStatus.FAILED


@pytest.mark.parametrize(
    ("orders", "ends", "error"),
    [
        (["break", "again", "done"], ["failed", "failed", "succeeded"], ""),
        (["wait", "wait", "break", "wait", "done"], ["snoozed", "failed", "snoozed", "succeeded"], ""),
        (["break", "give up"], ["failed", "failed"], "KeyError: 'no such thing'"),
        (["save"], ["failed"], "it can't be helped"),
        (["again"] * 5, ["failed"] * 5, "not yet"),
    ],
)
def test_a_function_says_what_follows_when_it_fails(queue, tmp_path, orders, ends, error):
    job = queue.store.jobs.enqueue(f"{SAMPLE}.obey", [str(tmp_path), *orders]).id
    with queue.worker(processes=1):
        record = queue.finished(job)
    assert [attempt.how for attempt in record.attempts] == ends
    assert sum(attempt.times for attempt in record.attempts) == len(orders) == queue.task(job).claims
    assert error in queue.task(job).error
    calls = sorted(file.name for file in tmp_path.iterdir())
    counted = [order not in ("wait",) for order in orders]
    assert calls == [f"call {place} attempt {1 + sum(counted[:place])}" for place in range(len(orders))]


def test_a_job_that_is_discarded_is_deleted(queue, tmp_path, caplog):
    caplog.set_level("INFO", logger="taskstore")
    job = queue.store.jobs.enqueue(f"{SAMPLE}.obey", [str(tmp_path), "drop"]).id
    queue.new_worker(processes=1).run(until_empty=True)
    assert queue.store.jobs.get(job) is None
    assert any(f"job {job} of default, {SAMPLE}.obey: discarded after 0" in each for each in caplog.messages)


def test_people_see_who_runs_a_job_and_what_it_has_written(queue):
    job = queue.enqueue("sleep", 2)
    with queue.worker(lease_ms=1_500, name="ann") as worker:
        assert eventually(lambda: queue.record(job).under_way and queue.record(job).log == "I sleep\n")
        under_way = queue.record(job).under_way
        assert (under_way.worker, born(under_way.pid) is not None) == (worker.name, True)
        record = queue.finished(job)
    assert [(attempt.how, attempt.pid) for attempt in record.attempts] == [(How.SUCCEEDED, under_way.pid)]


def test_a_worker_that_ends_with_the_work_tells_of_what_it_may_not_claim(queue):
    PausedGroup.objects.create(group="jobs/default", by="ann")
    queue.enqueue("add", 1, 2)
    worker = queue.new_worker()
    worker.run(until_empty=True, burst_wait_s=0)
    assert worker.left == ["jobs/default has tasks that may not be claimed now: it is paused, or at its limit"]


@pytest.mark.parametrize(
    ("output", "before", "times"), [("copy", "job {job} tests.jobs.sample.fail: ", 1), ("raw", "", 1), ("store", "", 0)]
)
def test_what_a_job_writes_is_in_the_log_of_its_worker_with_its_traceback(queue, capfd, caplog, output, before, times):
    job = queue.enqueue("fail", "too late", max_attempts=1)
    with queue.worker(output=output):
        assert queue.finished(job).log == "about to fail\n"
        eventually(lambda: "too late" in caplog.text)
    assert capfd.readouterr().err.splitlines().count(f"{before.format(job=job)}about to fail") == times
    [told] = [message for message in caplog.messages if "too late" in message]
    traceback = [line for line in told.splitlines() if line.startswith(f"job {job} tests.jobs.sample.fail:   File")]
    assert len(traceback) == times


def test_a_traceback_that_a_job_has_written_is_not_repeated(queue, capfd, caplog):
    job = queue.enqueue("log_and_fail", "too late")
    with queue.worker():
        assert "Traceback" in queue.finished(job).log
        eventually(lambda: "too late" in caplog.text)
    assert capfd.readouterr().err.count(f"job {job} {SAMPLE}.log_and_fail: ValueError: too late") == 1
    [told] = [message for message in caplog.messages if "too late" in message]
    assert "\n" not in told


def test_a_job_that_kills_its_parent_goes_no_further_than_its_limit(queue):
    job = queue.enqueue("kill_its_parent", max_lost=2)
    with queue.worker(lease_ms=600_000):
        record = queue.finished(job)
        assert queue.finished(queue.enqueue("add", 1, 1)).result == 2
    assert [attempt.how for attempt in record.attempts] == [How.LOST, How.LOST]
    assert queue.task(job).error.startswith("WorkerLost: ")


def test_jobs_of_a_worker_that_was_killed_are_taken_over_at_once(queue):
    """Its leases would have run for ten minutes more. The jobs say whether they are to be tried again."""
    again, not_again = queue.enqueue("hang_with", "ann"), queue.enqueue("sleep", 600, on_lost=OnLost.FAIL)
    with queue.worker_process(lease_ms=600_000, processes=2, name="ann") as process:
        assert eventually(lambda: queue.record(again).under_way and queue.record(not_again).under_way)
        pids = [queue.record(job).under_way.pid for job in (again, not_again)]
        # What the heartbeat said is how others find out.
        assert eventually(lambda: any(heard.name == "ann" for heard in queue.store.clients()))
        process.kill()
        process.wait()
        assert eventually(lambda: [born(pid) for pid in pids] == [None, None])
        with queue.worker(name="bob"):
            taken_over, given_up = queue.finished(again), queue.finished(not_again)
    assert [(each.how, each.worker) for each in taken_over.attempts] == [(How.LOST, "ann"), (How.SUCCEEDED, "bob")]
    assert [(each.how, each.worker) for each in given_up.attempts] == [(How.LOST, "ann")]
    assert "its worker ann" in given_up.error.message


def test_a_worker_that_may_end_waits_for_what_runs_again_and_for_the_dead(queue):
    again = queue.enqueue("fail", "x", max_attempts=2, backoff_ms=1_500)
    with queue.worker_process(processes=1, name="ann") as ann:
        held = queue.enqueue("hang_with", "ann")
        assert eventually(lambda: queue.record(held).under_way)
        ann.kill()
        ann.wait()
        bob = queue.new_worker(processes=1, name="bob")
        bob.run(until_empty=True)
    assert (queue.status(again), queue.status(held)) == (JobStatus.FAILED, JobStatus.SUCCEEDED)
    assert len(queue.record(again).attempts) == 2
    assert not bob.left


def test_a_worker_that_may_end_says_what_comes_later(queue):
    later, planned = queue.enqueue("fail", "x", max_attempts=2, backoff_ms=3_600_000), queue.enqueue("add", 1, 2)
    ann = queue.new_worker(processes=1)
    began_s = time.monotonic()
    ann.run(until_empty=True)
    assert time.monotonic() - began_s < 20
    assert queue.record(planned).result == 3
    [left] = ann.left
    assert left.startswith(f"task {later} of jobs/default runs again at 20")


def test_what_left_no_trace_counts_as_lost(queue):
    """As with a worker on a machine that has died: its lease ends."""
    job = queue.enqueue("add", 1, 1, max_lost=1)
    [task] = queue.store.claim(queue_group("default"), duration_ms=1)
    with queue.worker():
        record = queue.finished(job)
    assert (task.origin, record.error.type) == (job, "WorkerLost")


@pytest.mark.parametrize(("losses", "how"), [(3, How.SUCCEEDED), (4, How.LOST)])
def test_what_was_not_started_is_not_lost_three_times(queue, losses, how):
    job = queue.enqueue("add", 1, 1, on_lost=OnLost.FAIL)
    for _ in range(losses):
        assert eventually(lambda: queue.store.claim(queue_group("default"), duration_ms=1))
    with queue.worker():
        record = queue.finished(job)
    assert [each.how for each in record.attempts] == [*[How.NOT_STARTED] * 3, how]


def test_the_start_of_a_job_that_must_not_be_lost_is_recorded_first(queue):
    """The function sees the record of its own start."""
    job = queue.enqueue("under_way_of", queue.store.url, queue.token, on_lost=OnLost.FAIL)
    with queue.worker(name="ann"):
        record = queue.finished(job)
    assert record.result == [job, "ann"]
    [attempt] = record.attempts
    assert (attempt.how, attempt.worker) == (How.SUCCEEDED, "ann")


@pytest.mark.parametrize(
    ("data", "error"),
    [("hello", "invalid record of a job"), ('{"function": "a", "args": ["\\ud800"]}', "surrogates not allowed")],
)
def test_what_is_no_job_is_laid_aside(queue, data, error):
    """Also what can be read, and not be written again."""
    task = queue.store.add(queue_group("default"), data)
    with queue.worker():
        assert eventually(lambda: queue.status(task.origin) == JobStatus.FAILED)
    assert queue.task(task.origin).text == data
    assert error in queue.task(task.origin).error


def test_quick_jobs_may_share_processes(queue):
    jobs = [queue.enqueue("who_am_i") for _ in range(12)]
    with queue.worker(jobs_per_process=6):
        pids = {queue.finished(job).result["pid"] for job in jobs}
    assert 2 <= len(pids) <= 6


def test_what_comes_while_a_slow_job_runs_is_not_claimed_before_its_turn(queue):
    """Also after quick ones, of which several are claimed ahead."""
    quick = [queue.enqueue("add", 1, 1) for _ in range(12)]
    with queue.worker(processes=1, jobs_per_process=20):
        for job in quick:
            queue.finished(job)
        slow = queue.enqueue("sleep", 2)
        assert eventually(lambda: queue.record(slow).under_way)
        late = queue.finished(queue.enqueue("add", 1, 1))
    assert [attempt.how for attempt in late.attempts] == [How.SUCCEEDED]


def test_a_result_that_the_store_does_not_take_is_a_failure(queue, settings):
    settings.TASKSTORE_MAX_DATA_BYTES = 10_000
    job = queue.enqueue("say_much", 20_000, max_attempts=3)
    with queue.worker():
        record = queue.finished(job)
    assert (record.result, record.error.type, len(record.attempts)) == (None, "LimitExceeded", 1)


def test_a_result_that_is_no_json_fails_the_job_for_good_unless_it_is_ignored(queue, tmp_path):
    jobs = [queue.enqueue("leave_a_set", str(tmp_path), ignore_result=ignore) for ignore in (None, True)]
    with queue.worker():
        failed, succeeded = map(queue.finished, jobs)
    assert (failed.error.type, len(failed.attempts)) == ("ResultNotJson", 1)
    assert (succeeded.error, succeeded.result, succeeded.attempts[0].how) == (None, None, How.SUCCEEDED)
    job = queue.enqueue("tomorrow", "2026-11-29")
    with queue.worker():
        assert queue.finished(job).result == ["2026-11-30"]
    assert (tmp_path / "calls").read_text() == "xx"


def test_a_job_in_a_new_interpreter_says_how_far_it_is(queue):
    job = queue.enqueue("get_half_way", 2_000)
    with queue.worker(start="spawn", grace_s=0):
        assert eventually(lambda: progress_of(queue, job) == (0.5, "page 1000 of 2000"))
        [listed] = queue.store.jobs.list().jobs
        assert listed.progress == queue.store.jobs.get(job).progress
    assert progress_of(queue, job) is None


def progress_of(queue, job):
    found = queue.store.jobs.get(job).progress
    return found and (found.done, found.text)


def test_small_and_large_jobs_take_turns_in_one_process(queue):
    """A worker that sends while its runner does must read, too."""
    sizes = [*[5] * 12, *[300_000] * 4] * 3
    for size in sizes:
        queue.enqueue("add", "x" * size, "")
    with queue.worker(processes=1, jobs_per_process=1_000):
        assert eventually(lambda: sum(stats.finished for stats in queue.store.stats().groups) == len(sizes))
    assert sorted(len(JobRecord.decode(task.data).result) for task in queue.tasks()) == sorted(sizes)


def test_a_wrong_report_fails_the_job(queue):
    job = queue.enqueue("claim_too_much")
    with queue.worker():
        record = queue.finished(job)
    assert record.error.message == "done: must be a number from 0 to 1, not 1.5"


def test_a_worker_whose_jobs_end_in_its_grace_ends_soon_though_the_store_is_away(queue):
    """What came of the first can't be written; that the second has ended is heard all the same."""
    with proxy_to(queue.store.url) as proxy, Client(proxy.url, token=queue.token) as store:
        away = Queue(store, queue.token)
        jobs = [queue.enqueue("sleep", seconds) for seconds in (2, 3)]
        with away.worker_process(name="ann", lease_ms=600_000, grace_s=4, wait_ms=100, processes=2) as process:
            assert eventually(lambda: all(queue.record(job).under_way for job in jobs))
            proxy.breaks = lambda: True
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
