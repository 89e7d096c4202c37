"""A worker of jobs whose store goes away."""

import time
from contextlib import contextmanager

import pytest

from taskstore import Client
from taskstore.types.job_record import How
from taskstore.worker.process_tree import born
from tests.client.breaking import proxy_to
from tests.client.patience import wait_for_last_requests

from .workers import PATIENCE_S, Queue, eventually

# It is a matter of the way to the store, not of its database.
pytestmark = pytest.mark.once


class Away(Queue):
    """The same store by another way, which can be cut."""

    def __init__(self, store, token, proxy):
        super().__init__(store, token)
        self._proxy = proxy

    @contextmanager
    def cut(self):
        self._proxy.breaks = lambda: True
        yield
        self._proxy.breaks = lambda: False


@pytest.fixture
def away(queue):
    with proxy_to(queue.store.url) as proxy, Client(proxy.url, token=queue.token, patience_s=0.1) as store:
        yield Away(store, queue.token, proxy)
        wait_for_last_requests()


def test_a_worker_ends_soon_after_its_grace_and_others_get_its_job(queue, away, capfd):
    """Its client would try each call for longer than the test has patience."""
    job = queue.enqueue("hang_with", "ann")
    with away.worker_process(name="ann", lease_ms=600_000, grace_s=0.5, wait_ms=100) as process:
        assert eventually(lambda: queue.record(job).under_way)
        assert eventually(lambda: any(heard.name == "ann" for heard in queue.store.clients()))
        with away.cut():
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
    said = [line for line in capfd.readouterr().err.splitlines() if "the store" in line]
    assert [line.partition(":")[0] for line in said] == ["the store is not responding"]
    with queue.worker(name="bob"):
        record = queue.finished(job)
    assert [(each.how, each.worker) for each in record.attempts] == [(How.LOST, "ann"), (How.SUCCEEDED, "bob")]


def test_a_worker_whose_jobs_end_in_its_grace_ends_soon(queue, away):
    """What came of the first can't be written; that the second has ended is heard all the same."""
    jobs = [queue.enqueue("sleep", seconds) for seconds in (3, 5)]
    with away.worker_process(name="ann", lease_ms=600_000, grace_s=600, wait_ms=100, processes=2) as process:
        assert eventually(lambda: all(queue.record(job).under_way for job in jobs))
        with away.cut():
            process.terminate()
            assert process.wait(PATIENCE_S) == 0


def test_it_says_once_that_the_store_is_away_and_once_that_it_is_back(queue, away, caplog):
    """Claims, renewals and what came of jobs all meet with it."""
    job = queue.enqueue("sleep", 2)
    with away.worker(lease_ms=3_000):
        assert eventually(lambda: queue.record(job).under_way)
        pid = queue.record(job).under_way.pid
        with away.cut():
            assert eventually(lambda: born(pid) is None)
            gone_ms = time.time() * 1_000
            assert eventually(lambda: caplog.messages)
            time.sleep(2)
        record = queue.finished(job)
    assert record.result == "slept"
    assert record.attempts[-1].ended < gone_ms + 1_500  # Not when the store was back.
    begun, ended = caplog.messages
    assert begun.startswith("the store is unreachable")
    assert ended == "the store is reachable again"
