"""The store in the process of a worker: the verbs, claims that wait, and its end."""

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from django.db import OperationalError, connection

from tasks_app import database
from tasks_app.core.operations import Commit
from tasks_app.local_store import LocalStore
from tasks_app.models import Task as StoredTask
from tasks_app.writer.writer import running
from taskstore.errors import CommitRefused, InvalidInput, StoreUnavailable
from taskstore.types.tasks import Change, NewTask, Order
from taskstore.worker.worker import Worker
from tests.behaviour.databases import only_sqlite

pytestmark = pytest.mark.django_db(transaction=True)

SCHEDULER = 1  # It waits for what is due, too.


@pytest.fixture
def store():
    with LocalStore() as store:
        yield store


def test_a_worker_claims_renews_and_commits_in_its_own_name(store):
    [added, other] = store.commit(adds=[NewTask(group="mail", data=b"1", labels={"to": "ann"}), NewTask(group="mail")])
    [held] = store.claim("mail", duration_ms=60_000, order=Order.OLDEST)
    assert (held.origin, held.owner, held.data, held.labels, held.claims) == (
        added.id,
        store.id,
        b"1",
        {"to": "ann"},
        1,
    )
    assert store.tasks([held.id, added.id, other.id]) == [held, None, other]
    [renewed] = store.commit(updates=[Change(id=held.id, timespec_ms=-90_000)])
    assert renewed.available_at_ms > held.available_at_ms
    assert (renewed.data, renewed.labels) == (b"1", {"to": "ann"})
    [moved] = store.commit(updates=[Change(id=renewed.id, group="reports", error="torn", timespec_ms=-90_000)])
    [renewed] = store.commit(updates=[Change(id=moved.id, group="mail", timespec_ms=-90_000)])
    assert (renewed.data, renewed.error, renewed.origin) == (b"1", "torn", added.id)
    with pytest.raises(InvalidInput, match=r"adds\[0\].id"):
        store.commit(adds=[NewTask(group="mail", id=renewed.id)])
    with pytest.raises(CommitRefused):
        store.commit(deletes=[renewed.id], client_id=store.id + 1)
    assert store.commit(deletes=[renewed.id]) == []


def test_a_claim_waits_until_there_is_something(store):
    with ThreadPoolExecutor() as threads:
        claims = [threads.submit(store.claim, ["mail", "reports"], wait_ms=30_000) for _ in range(2)]
        wait_until(lambda: writer().waiting == 2 + SCHEDULER)
        store.commit(adds=[NewTask(group="reports"), NewTask(group="mail")])
        found = sorted(task.group for claim in claims for task in claim.result(timeout=10))
    assert found == ["mail", "reports"]
    assert store.claim("mail", wait_ms=1) == []


@only_sqlite
def test_a_claim_finds_at_once_what_comes_after_a_lock_that_kept_a_look_out(rollback_journal, monkeypatch):
    kept_out = threading.Event()

    class Seen(sqlite3.Connection):
        def execute(self, *asked):
            try:
                return super().execute(*asked)
            except sqlite3.OperationalError:
                kept_out.set()
                raise

    monkeypatch.setattr("tasks_app.writer.waiting_claims.LOOK_EVERY_S", 60.0)
    watched = SimpleNamespace(connect=partial(sqlite3.connect, factory=Seen), OperationalError=sqlite3.OperationalError)
    monkeypatch.setattr("tasks_app.local_store.sqlite3", watched)
    with LocalStore() as store, ThreadPoolExecutor() as threads:
        claim = threads.submit(store.claim, "mail", wait_ms=30_000)
        wait_until(lambda: writer().waiting == 1 + SCHEDULER)
        with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert kept_out.wait(timeout=10)
            other.execute("COMMIT")
        database.run(Commit(owner=1, adds=(NewTask(group="mail"),)))
        assert len(claim.result(timeout=5)) == 1


def test_it_says_who_works_here_and_who_else_does(store):
    store.heartbeat(name="ann", host="node-1", pid=17, groups=["mail"], version="1", info={"jobs": {}})
    [heard] = store.clients()
    assert (heard.client_id, heard.name, heard.host, heard.pid) == (store.id, "ann", "node-1", 17)
    assert heard.info == {"jobs": {}}
    assert 0 <= heard.age_ms < 60_000


def test_it_finds_what_a_worker_holds(store):
    store.commit(adds=[NewTask(group="mail"), NewTask(group="mail")])
    [held] = store.claim("mail")
    assert store.search(f'group:"mail" state:claimed owner:{store.id}').tasks == [held]


def test_at_its_end_claims_find_nothing_and_nothing_works_any_more():
    before = threading.active_count()
    with LocalStore() as store, ThreadPoolExecutor() as threads:
        claim = threads.submit(store.claim, "mail", wait_ms=30_000)
        wait_until(lambda: writer().waiting == 1 + SCHEDULER)
        store.stop()
        assert claim.result(timeout=10) == []
    assert running("default") is None
    wait_until(lambda: threading.active_count() <= before)  # A thread is counted until it has ended.


def test_a_worker_that_stops_does_not_get_again_what_it_gives_back(store):
    has_begun, may_end = threading.Event(), threading.Event()
    worker = Worker(store, threads=2, wait_ms=5_000, grace_s=0)

    @worker.handle("mail")
    def send(task):
        has_begun.set()
        may_end.wait(timeout=30)

    store.commit(adds=[NewTask(group="mail")])
    with ThreadPoolExecutor() as threads:
        running = threads.submit(worker.run)
        try:
            assert has_begun.wait(timeout=10)
            wait_until(lambda: writer().waiting == 1 + SCHEDULER)
            worker.stop()
            running.result(timeout=20)
        finally:
            worker.stop()
            may_end.set()
    [task] = store.search("group:mail").tasks
    assert (task.owner, task.claims) == (0, 1)
    assert store.claim("mail", wait_ms=0)[0].origin == task.origin


def test_a_claim_that_was_broken_off_takes_nothing(store):
    claiming = store.for_claims()
    with ThreadPoolExecutor() as threads:
        claim = threads.submit(claiming.claim, "mail", wait_ms=30_000)
        wait_until(lambda: writer().waiting == 1 + SCHEDULER)
        claiming.hang_up()
        with pytest.raises(StoreUnavailable):
            claim.result(timeout=10)
    with pytest.raises(StoreUnavailable):
        claiming.claim("mail")
    [added] = store.commit(adds=[NewTask(group="mail")])
    assert store.tasks([added.id]) == [added]
    claiming.close()
    assert len(store.claim("mail")) == 1


def test_it_tells_of_cancelled_tasks_and_a_wait_for_them_can_be_broken_off(store):
    store.commit(adds=[NewTask(group="mail")])
    [held] = store.claim("mail", duration_ms=60_000)
    StoredTask.objects.cancel([held.id])
    told = store.cancelled()
    assert told.ids == (held.id,)
    watching = store.for_claims()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(watching.cancelled, after=told.after, wait_ms=30_000)
        wait_until(lambda: watching._waiting)
        watching.hang_up()
        with pytest.raises(StoreUnavailable):
            waiting.result(timeout=10)


def test_a_database_that_is_away_is_a_store_that_is_away(store, monkeypatch):
    monkeypatch.setattr("tasks_app.reading.clients.seen", Mock(side_effect=OperationalError("gone")))
    with pytest.raises(StoreUnavailable):
        store.clients()


def test_it_says_why_it_can_not_begin(monkeypatch):
    monkeypatch.setattr("tasks_app.local_store.Writer.start", Mock(side_effect=StoreUnavailable("it is away")))
    with pytest.raises(StoreUnavailable), LocalStore():
        pass


def writer():
    found = running("default")
    assert found
    return found


def wait_until(is_so):
    for _ in range(1_000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to be so")
