"""What every worker does, whether its work runs in threads, processes or an event loop, as jobs or in shells."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from lab.testing.processes import family, signal_all
from tasks_app.access import tokens
from tasks_app.core.actors import Actor
from tasks_app.models import Scope
from tasks_app.models import Task as StoredTask
from taskstore import Change, Client, CommitRefused, NotAllowed
from taskstore.types.job_record import How
from taskstore.types.tasks import Ending
from taskstore.worker import engine, heartbeat
from tests.client.breaking import Proxy, proxy_to
from tests.client.patience import PATIENCE_S, wait_for, wait_for_last_requests
from tests.served import Served

from .children import is_alive
from .executors import KINDS, Executor, executor_of

# They speak HTTP alone. The stress tests have workers on each database.
pytestmark = pytest.mark.once

SOON_S = 5


@pytest.fixture(params=KINDS)
def executor(request, served: Served, settings, tmp_path: Path) -> Iterator[Executor]:
    settings.TASKSTORE_COMMANDS = True
    _, secret = tokens.create("ann", Scope.COMMANDS)
    with Client(served.url, token=secret) as store:
        made = executor_of(request.param, store, secret, tmp_path)
        yield made
        made.end_all()
        wait_for_last_requests()


@pytest.fixture
def proxy(executor) -> Iterator[Proxy]:
    with proxy_to(executor.store.url) as proxy:
        yield proxy


@contextmanager
def cut(proxy: Proxy) -> Iterator[None]:
    proxy.breaks = lambda: True
    yield
    proxy.breaks = lambda: False


def is_known(executor: Executor) -> bool:
    """Whether others know the process of ann, by which they find out that it has died."""
    return any(heard.name == "ann" for heard in executor.store.clients())


def test_an_idle_worker_begins_at_once(executor):
    """It waits in one request for longer than the test has patience."""
    with executor.worker(wait_s=60):
        for name in ("first", "second"):
            executor.add(name)
            began = time.monotonic()
            executor.ends(name)
            assert time.monotonic() < began + SOON_S


def test_several_run_at_once(executor):
    executor.add("first", awaits="second")
    executor.add("second", awaits="first")
    with executor.worker(at_once=2):
        executor.ends("first", "second")


def test_work_may_take_longer_than_its_lease(executor):
    executor.add("long", seconds=3)
    with executor.worker(lease_s=2), executor.process(name="bob"):
        executor.ends("long")
    assert len(executor.pids("long")) == 1


def test_a_worker_that_may_end_ends_when_nothing_is_due(executor, caplog):
    caplog.set_level("INFO", logger="taskstore")
    for name in ("first", "second", "third", "later"):
        executor.add(name)
    executor.change("later", timespec_ms=-3_600_000)
    executor.engine(at_once=2).run(until_empty=True, burst_wait_s=1)
    assert [name for name in executor.ids if executor.is_done(name)] == ["first", "second", "third"]
    assert (
        sum(
            bool(re.search(r"(done|succeeded) after [0-9.e-]+ s|after [0-9.e-]+ s succeeded", each))
            for each in caplog.messages
        )
        == 3
    )


def test_people_see_how_far_the_work_is(executor):
    executor.add("half", seconds=60)
    with executor.worker():
        wait_for(lambda: progress_of(executor, "half") == (0.5, "half"), "the progress")
    assert progress_of(executor, "half") is None


def progress_of(executor, name):
    seen = executor.store.task(executor.task(name).id)
    return seen and seen.progress and (seen.progress.done, seen.progress.text)


def test_people_see_who_works(executor):
    with executor.worker(name="ann_7"):
        wait_for(executor.store.clients, "the first heartbeat")
        [seen] = executor.store.clients()
    assert (seen.name, seen.groups) == ("ann_7", (executor.group,))
    assert executor.store.clients() == []  # It has said that it stops.


def test_a_token_that_is_not_sufficient_ends_a_worker(executor):
    _, secret = tokens.create("reader", Scope.READ)
    with Client(executor.store.url, token=secret) as store:
        with pytest.raises(NotAllowed):
            executor.engine(store).run()
        wait_for_last_requests()


# ---- The end of a worker


def test_what_does_not_end_in_the_grace_is_given_back_and_not_got_again(executor):
    """Its claim waits for longer than it has left."""
    executor.add("long", seconds=60)
    with executor.worker(at_once=2, wait_s=5):
        executor.begins("long")
    assert executor.is_given_back("long")
    assert len(executor.pids("long")) == 1
    assert executor.kind in ("thread", "loop") or executor.is_gone("long")
    assert executor.store.claim(executor.group)


def test_sigterm_lets_work_end(executor):
    executor.add("short", seconds=1)
    with executor.process(grace_s=30) as stopped:
        executor.begins("short")
        stopped.terminate()
        assert stopped.wait(PATIENCE_S) == 0
    assert executor.is_done("short")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_is_a_stop_of_the_worker(executor, number):
    """As by systemd's default, by Heroku, and by Ctrl-C. What fails by it is given back, the rest has its grace."""
    executor.add("program", seconds=60, program=True)
    executor.add("short", awaits="go")
    executor.add("long", seconds=60)
    with executor.process(at_once=3, grace_s=2) as stopped:
        executor.begins("program", "short", "long")
        signal_all(stopped.pid, number)
        executor.touch("go")
        assert stopped.wait(PATIENCE_S) == 0
    # All shells were signalled. A shell goes on after a SIGINT that the command it waits for did not get.
    if (executor.kind, number) != ("shell", signal.SIGINT):
        assert executor.is_done("short") is (executor.kind != "shell")
    assert executor.is_given_back("program")
    assert executor.is_given_back("long")


def test_a_worker_ends_after_its_grace_though_all_that_it_has_started_is_stopped(executor):
    executor.add("long", seconds=60)
    with executor.process(grace_s=1) as worker:
        executor.begins("long")
        others = family(worker.pid) - {worker.pid}
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        worker.terminate()
        assert worker.wait(PATIENCE_S) == 0
    assert executor.is_given_back("long")
    wait_for(lambda: not any(map(is_alive, others)), "the end of all processes")


def test_a_second_signal_ends_a_worker_at_once(executor):
    executor.add("long", seconds=60)
    with executor.process(grace_s=60) as stopped:
        executor.begins("long")
        stopped.send_signal(signal.SIGTERM)
        stopped.send_signal(signal.SIGINT)  # The same one, passed on.
        time.sleep(engine.SAME_S + 1)
        assert stopped.poll() is None
        stopped.send_signal(signal.SIGTERM)
        assert stopped.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_the_work_of_a_killed_worker_ends_and_is_taken_over(executor):
    """Jobs and lists at once; others when their leases end."""
    executor.add("long", seconds=60)
    with executor.process(lease_s=executor.quick_lease_s) as killed:
        executor.begins("long")
        wait_for(lambda: is_known(executor), "the first heartbeat")
        killed.kill()
        wait_for(lambda: executor.is_gone("long"), "the end of its processes")
    with executor.worker(name="bob"):
        wait_for(lambda: executor.is_taken_over("long"), "the next attempt")


def test_work_ends_and_commits_nothing_when_its_lease_is_lost(executor):
    executor.add("long", seconds=60)
    with executor.worker(lease_s=3):
        executor.begins("long")
        wait_for(lambda: is_deleted(executor, "long"), "a deletion between two renewals")
        wait_for(lambda: executor.is_over("long"), "the end of the work")
    assert executor.store.groups() == []


def is_deleted(executor, name):
    operator = Actor("olaf").operator(Ending.DELETED)
    try:
        StoredTask.objects.commit(owner=0, deletes=[executor.task(name).id], operator=operator)
    except CommitRefused:
        return False
    return True


def test_work_that_is_cancelled_ends_though_its_lease_lasts_and_runs_no_more(executor):
    executor.add("long", seconds=60)
    with executor.worker(lease_s=600):
        executor.begins("long")
        # The task may be replaced by its first report, which `cancel` looks for again.
        assert len(StoredTask.objects.cancel([executor.ids["long"]], by="olaf")) == 1
        wait_for(lambda: executor.is_over("long"), "the end of the work")
        executor.add("next")
        executor.ends("next")
    assert len(executor.pids("long")) == 1


# ---- A store that is away


def test_a_worker_says_once_that_the_store_is_away_and_once_that_it_is_back(executor, proxy, caplog):
    """Claims, renewals and results all meet with it. The result is written afterwards."""
    executor.add("waiting", awaits="go")
    with Client(proxy.url, token=executor.token, patience_s=0.1) as store, executor.worker(store, at_once=2):
        executor.begins("waiting")
        with cut(proxy):
            wait_for(lambda: caplog.messages, "the first message")
            executor.touch("go")
            time.sleep(1)
            assert not executor.is_done("waiting")
        executor.ends("waiting")
        wait_for(lambda: len(caplog.messages) > 1, "the second message")
    begun, ended = caplog.messages
    assert begun.startswith("the store is unreachable")
    assert ended == "the store is reachable again"


@pytest.mark.parametrize("executor", ["thread", "shell"], indirect=True)  # Which write by different threads.
def test_a_worker_with_all_places_taken_says_so_too(executor, proxy, caplog, monkeypatch):
    monkeypatch.setattr(engine, "LATE_S", 0.3)
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.2)
    executor.add("waiting", awaits="go")
    with Client(proxy.url, token=executor.token) as store, executor.worker(store):
        executor.begins("waiting")
        with cut(proxy):
            wait_for(lambda: caplog.messages, "the first message")
        wait_for(lambda: len(caplog.messages) > 1, "the second message")
        executor.touch("go")
        executor.ends("waiting")
    assert [message.split(";")[0] for message in caplog.messages] == [
        "the store is unreachable",
        "the store is reachable again",
    ]


@pytest.mark.parametrize("executor", ["thread"], indirect=True)
def test_a_claim_that_waits_anew_after_an_outage_is_not_late(executor, proxy, caplog, monkeypatch):
    """Between two heartbeats, which tell that the store is back."""
    monkeypatch.setattr(engine, "LATE_S", 0.5)
    monkeypatch.setattr(heartbeat, "BEAT_S", 1.5)
    with Client(proxy.url, token=executor.token) as store, executor.worker(store, wait_s=4):
        time.sleep(0.5)
        with cut(proxy):
            wait_for(lambda: caplog.messages, "the first message")
            time.sleep(4)  # The answer to the claim is lost.
        wait_for(lambda: len(caplog.messages) > 1, "the second message")
        time.sleep(4)
    assert [message.split(";")[0] for message in caplog.messages] == [
        "the store is unreachable",
        "the store is reachable again",
    ]


def test_work_goes_on_after_an_outage_that_was_longer_than_its_lease(executor, proxy):
    """The worker has room for another task, and so would its own."""
    executor.add("long", awaits="go")
    with Client(proxy.url, token=executor.token) as store, executor.worker(store, at_once=2, lease_s=1):
        executor.begins("long")
        with cut(proxy):
            time.sleep(2.5)
        time.sleep(3)
        assert executor.task("long").claims == 1
        executor.touch("go")
        executor.ends("long")
    assert len(executor.pids("long")) == 1


def test_after_an_outage_a_worker_leaves_others_what_they_do(executor, proxy):
    """Bob comes back before Ann."""
    executor.add("long", awaits="go")
    options = {"lease_s": 1, "at_once": 2}
    with (
        proxy_to(executor.store.url) as other,
        Client(proxy.url, token=executor.token, client_id=1) as ann,
        Client(other.url, token=executor.token, client_id=2) as bob,
        executor.worker(ann, **options),
    ):
        executor.begins("long")
        with executor.worker(bob, name="bob", **options):
            with cut(proxy):
                with cut(other):
                    time.sleep(2.5)
                time.sleep(0.7)
            time.sleep(3)
            assert executor.task("long").claims == 1
            executor.touch("go")
            executor.ends("long")


def test_a_worker_that_was_stopped_for_longer_than_its_lease_renews_it_before_it_claims(executor):
    executor.add("long", awaits="go")
    with executor.process(at_once=2, lease_s=1, wait_s=0.05) as worker:
        executor.begins("long")
        for _ in range(3):
            os.kill(worker.pid, signal.SIGSTOP)
            time.sleep(1.5)
            os.kill(worker.pid, signal.SIGCONT)
            time.sleep(0.5)
        assert executor.task("long").claims == 1
        executor.touch("go")
        executor.ends("long")


def test_work_that_its_own_worker_claims_again_goes_on(executor):
    """A claim of the worker waits in the store while its process is stopped and the lease ends."""
    executor.add("long", awaits="go")
    with executor.process(at_once=2, lease_s=1.5, wait_s=20) as worker:
        executor.begins("long")
        for _ in range(2):
            claims = executor.task("long").claims
            os.kill(worker.pid, signal.SIGSTOP)
            wait_for(partial(is_claimed_again, executor, claims), "the claim that waits to get the task")
            os.kill(worker.pid, signal.SIGCONT)
            time.sleep(2)
        executor.touch("go")
        executor.ends("long")
    assert len(executor.pids("long")) == 1
    assert executor.how("long") == [How.AWAY, How.SUCCEEDED]


def is_claimed_again(executor, claims):
    return executor.task("long").claims > claims


def test_work_that_was_released_ends_before_its_worker_begins_it_again(executor):
    executor.add("long", awaits="go")
    with executor.worker(at_once=2, lease_s=600, wait_s=20):
        executor.begins("long")
        task = executor.task("long")
        executor.store.commit(updates=[Change(id=task.id, release=True)])
        wait_for(lambda: len(executor.pids("long")) == 2, "the second attempt")
        if executor.kind in ("job", "shell"):
            assert not is_alive(executor.pids("long")[0])
        else:
            assert executor.is_over("long")
        executor.touch("go")
        executor.ends("long")
    assert executor.how("long") == [How.AWAY, How.SUCCEEDED]


def test_a_worker_ends_soon_after_its_grace_though_the_store_is_away(executor, proxy):
    """Its client would try each call for longer than the test has patience. Others get its work."""
    executor.add("long", seconds=60)
    with executor.process(proxy.url, grace_s=0.5, lease_s=executor.quick_lease_s) as stopped:
        executor.begins("long")
        wait_for(lambda: is_known(executor), "the first heartbeat")
        with cut(proxy):
            stopped.terminate()
            assert stopped.wait(PATIENCE_S) == 0
    assert executor.is_gone("long")
    with executor.worker(name="bob"):
        wait_for(lambda: executor.is_taken_over("long"), "the next attempt")
