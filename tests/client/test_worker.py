"""A worker in a thread, beside a server of ours."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from lab.testing import PROJECT
from taskstore import (
    Change,
    Client,
    Context,
    InvalidInput,
    NewTask,
    Result,
    Retry,
    Snooze,
    StoreUnavailable,
    UnexpectedAnswer,
    Worker,
)
from taskstore.errors import NotHeld
from taskstore.worker import engine, functions
from taskstore.worker.children import NotPrepared
from taskstore.worker.functions import Functions
from taskstore.worker.heartbeat import Reports

from . import deadly
from .fakes import FakeStore
from .patience import PATIENCE_S, wait_for

pytestmark = pytest.mark.once

SHORT_MS = 2_000
WAIT_MS = 200  # A claim that outlasts its test would disturb the next one.


class Running:
    """A worker that runs until the end of the test."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._thread = threading.Thread(target=worker.run)

    def __enter__(self) -> Worker:
        self._thread.start()
        return self.worker

    def __exit__(self, *_: object) -> None:
        self.worker.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def worker(store: Client) -> Worker:
    return Worker(store, name="mailer", lease_ms=SHORT_MS, wait_ms=WAIT_MS, grace_s=0)


@pytest.fixture
def events() -> Iterator[list[threading.Event]]:
    """That functions wait for; all are set at the end."""
    made = [threading.Event() for _ in range(3)]
    yield made
    for event in made:
        event.set()


def texts(store: Client, group: str) -> list[str]:
    return [task.text for task in store.group(group, owned=True)]


def all_of(store: Client, group: str) -> list[Any]:
    return list(store.group(group, owned=True))


def gone(store: Client, group: str = "mail") -> None:
    wait_for(lambda: not all_of(store, group), f"the end of {group}")


def test_what_a_function_returns_is_committed_with_the_end_of_its_task(store, worker):
    @worker.handle("mail")
    def send(task):
        return NewTask(group="sent", data=task.data.upper())

    @worker.handle("reports")
    async def write(task, context):
        await asyncio.sleep(0)
        return [NewTask(group="written", data=f"{context.worker} {context.attempt}".encode())]

    store.add("mail", "a"), store.add("mail", "b"), store.add("reports", "c")
    with Running(worker):
        gone(store)
        gone(store, "reports")
    assert (sorted(texts(store, "sent")), texts(store, "written")) == (["A", "B"], ["mailer 1"])


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_function_says_what_follows_when_it_fails(store, worker, kind):
    calls = []

    def obey(task, context):
        calls.append((task.text, context.attempt))
        match task.text, sum(each == task.text for each, _ in calls):
            case "wait", 1 | 2:
                raise Snooze(timedelta(milliseconds=10))
            case "again", 1:
                raise Retry(timedelta(milliseconds=10), "not yet")
            case "give up", _:
                raise KeyError("no such thing")
            case "drop", _:
                raise PermissionError("never mind")

    async def obey_later(task, context):
        obey(task, context)

    rules = {"retry_on": OSError, "discard_on": PermissionError, "backoff": lambda attempt: timedelta()}
    worker.handle("mail", **rules)(obey if kind == "function" else obey_later)
    for text in ("wait", "again", "give up", "drop"):
        store.add("mail", text)
    with Running(worker):
        gone(store)
    assert sorted(calls) == [
        ("again", 1), ("again", 2), ("drop", 1), ("give up", 1), ("wait", 1), ("wait", 1), ("wait", 1),
    ]  # fmt: skip
    [failed] = all_of(store, "mail/failed")
    assert (failed.text, failed.error) == ("give up", "KeyError: 'no such thing'")
    assert worker.ended == {"snoozed": 2, "failed": 1, "saved": 1, "discarded": 1, "done": 2}


def test_a_worker_may_end_when_no_task_is_available(store, worker, caplog):
    """What its functions add is done, too."""
    caplog.set_level("INFO", logger="taskstore")

    @worker.handle("pages")
    def write(task):
        left = int(task.text)
        time.sleep(0.05)
        return [NewTask(group="pages", data=str(left - 1).encode())] if left else None

    store.add("pages", "5"), store.add("pages", "1", timespec_ms=-3_600_000)
    worker.run(until_empty=True)
    assert texts(store, "pages") == ["1"]
    assert worker.ended == {"done": 6}
    assert sum("of pages, attempt 1: done after 0" in each for each in caplog.messages) == 6


def test_a_change_keeps_what_it_does_not_name_and_may_move_the_task(store, worker):
    added = store.add("mail", b"\xff", data_type="a/b", error="torn", labels={"tier": "gold"}, priority=5)

    @worker.handle("mail")
    def step(task):
        return Change(id=task.id, group="reports")

    with Running(worker):
        wait_for(lambda: all_of(store, "reports"), "the move")
    [moved] = all_of(store, "reports")
    kept = (moved.data, moved.data_type, moved.error, moved.labels, moved.priority, moved.origin)
    assert kept == (b"\xff", "a/b", "torn", {"tier": "gold"}, 5, added.id)
    assert [step.ended and step.ended.how for step in store.history(added.id).steps] == ["claimed", "moved", None]


def test_an_id_that_is_not_deleted_is_a_failed_attempt(store, worker):
    other = store.add("reports", "as it was")

    @worker.handle("mail", max_attempts=1)
    def step(task):
        return NewTask(group="sent", id=other.id)

    store.add("mail", "x")
    with Running(worker):
        wait_for(lambda: all_of(store, "mail/failed"), "the failed task")
    [failed] = store.group("mail/failed")
    assert "adds[0].id" in failed.error
    assert store.task(other.id) == other
    assert not all_of(store, "sent")


def test_what_fails_is_tried_again_and_then_kept_with_its_error(store, worker):
    added = store.add("mail", "no address", labels={"tier": "gold"}, priority=5)
    attempts = []

    @worker.handle("mail", max_attempts=3, backoff=timedelta(milliseconds=50))
    def send(task, context):
        attempts.append((context.attempt, task.labels.get("attempts"), task.error))
        raise ValueError(task.text)

    with Running(worker):
        gone(store)
    error = "ValueError: no address"
    assert attempts == [(1, None, ""), (2, "2", error), (3, "3", error)]
    [failed] = store.group("mail/failed")
    assert (failed.text, failed.error, failed.labels, failed.priority, failed.origin) == (
        "no address", error, {"tier": "gold", "failed_from": "mail"}, 5, added.id,
    )  # fmt: skip
    assert worker.ended == {"failed": 3}


def test_the_task_of_dead_workers_fails_at_last(store, worker):
    store.add("mail", labels={"attempts": "5"})
    store.claim("mail", duration_ms=0)  # By a worker that dies.

    @worker.handle("mail")
    def send(task):
        pytest.fail("it has killed enough of us")

    with Running(worker):
        gone(store)
    assert [task.error for task in store.group("mail/failed")] == ["WorkerDied: in attempt 5"]


def test_what_can_not_be_committed_is_a_failure(store, worker):
    @worker.handle("mail", max_attempts=1)
    def send(task):
        match task.text:
            case "depends":
                return Result(depends=[10**9])
            case "nonsense":
                return NewTask(group="x" * 300)
            case "no data":
                nothing: Any = 5
                return NewTask(group="sent", data=nothing)
            case "no change":
                nothing = ["sent"]
                return Result(adds=nothing)
        return NewTask(group="sent") if task.text == "fine" else "sent"

    for text in ("depends", "nonsense", "no data", "no change", "type", "fine"):
        store.add("mail", text)
    with Running(worker):
        gone(store)
    errors = {task.text: task.error.partition(":")[0].rpartition(".")[2] for task in store.group("mail/failed")}
    assert errors == {
        "depends": "CommitRefused",
        "nonsense": "InvalidInput",
        "no data": "TypeError",
        "no change": "AttributeError",
        "type": "TypeError",
    }
    assert len(all_of(store, "sent")) == 1


def test_a_worker_that_stops_gives_back_at_once_what_it_has_not_begun(store, events):
    begun, release, _ = events
    worker = Worker(store, batch=5, wait_ms=WAIT_MS, grace_s=PATIENCE_S)
    sent = []

    @worker.handle("mail")
    def send(task):
        sent.append(task.text)
        begun.set()
        release.wait(PATIENCE_S)

    for number in range(4):
        store.add("mail", str(number))
    with Running(worker):
        assert begun.wait(PATIENCE_S)
        wait_for(lambda: not list(store.group("mail")), "the claim of all")
        worker.stop()
        wait_for(lambda: len(list(store.group("mail"))) == 3, "the return of the others")
        release.set()
    left = all_of(store, "mail")
    assert sorted([*sent, *(task.text for task in left)]) == ["0", "1", "2", "3"]
    assert all(task.owner == 0 and "attempts" not in task.labels for task in left)


def test_one_lost_task_of_a_claim_costs_the_others_nothing(store, monkeypatch):
    for name in ("a", "b", "c"):
        store.add("mail", name)
    for task in store.claim("mail", limit=3):
        store.release(task)  # Claimed before: the worker notes the attempt.
    claim = Client.claim

    def claim_and_lose_one(self, *args, **kwargs):
        tasks = claim(self, *args, **kwargs)
        for task in tasks:
            if task.text == "b":
                self.delete(task)
        return tasks

    monkeypatch.setattr(Client, "claim", claim_and_lose_one)
    worker = Worker(store, batch=3, lease_ms=600_000, wait_ms=WAIT_MS)
    worker.handle("mail")(lambda task: NewTask(group="sent", data=task.data))
    with Running(worker):
        gone(store)
    assert sorted(texts(store, "sent")) == ["a", "c"]


def test_what_is_being_committed_when_the_grace_ends_is_committed(store, worker, monkeypatch):
    entry, end, is_over = Functions.entry, Functions.end, threading.Event()

    def entry_slowly(functions, attempt, outcome):
        worker.stop()
        is_over.wait(PATIENCE_S)
        return entry(functions, attempt, outcome)

    def ended(functions):
        is_over.set()
        end(functions)

    monkeypatch.setattr(Functions, "entry", entry_slowly)
    monkeypatch.setattr(Functions, "end", ended)
    worker.handle("mail")(lambda task: None)
    store.add("mail")
    with Running(worker):
        gone(store)


def test_a_store_that_does_not_answer_is_told_before_the_client_gives_up(caplog, monkeypatch):
    monkeypatch.setattr(engine, "LATE_S", 0.05)
    fake, answered = FakeStore(), threading.Event()
    monkeypatch.setattr(fake, "claim", lambda *_, **__: answered.wait(PATIENCE_S) and [])
    worker = Worker(fake, wait_ms=0)
    worker.handle("mail")(print)
    with Running(worker):
        wait_for(lambda: caplog.messages, "the first word")
        answered.set()
    assert caplog.messages[0].endswith("it has not responded for 0.05 s")


def test_a_wrong_address_ends_it():
    fake = FakeStore()
    fake.problem = UnexpectedAnswer("a page of somebody else")
    worker = Worker(fake)
    worker.handle("mail")(print)
    with pytest.raises(UnexpectedAnswer):
        worker.run()


def test_it_needs_a_function_for_each_group_and_not_two():
    worker = Worker(FakeStore())
    worker.handle("mail")(print)
    with pytest.raises(ValueError, match="another function handles 'mail'"):
        worker.handle("mail")
    with pytest.raises(ValueError, match="no function"):
        Worker(FakeStore()).run()


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"lease_ms": 0}, {"lease_ms": "30s"}])
def test_a_worker_that_could_do_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: must be"):
        Worker(FakeStore(), **wrong)


def test_a_process_that_dies_of_a_function_fails_the_task_and_is_replaced(store):
    worker = Worker(store, processes=1, wait_ms=WAIT_MS)
    worker.handle("fatal", max_attempts=2, backoff=timedelta())(deadly.die)
    worker.handle("unsendable", max_attempts=1)(deadly.answer_nonsense)
    store.add("fatal"), store.add("unsendable")
    with Running(worker):
        gone(store, "fatal")
        gone(store, "unsendable")
    errors = [task.error for group in ("fatal/failed", "unsendable/failed") for task in store.group(group)]
    assert errors == [
        "ProcessDied: its process ended with code 3 before the function returned",
        "TypeError: cannot pickle 'generator' object",
    ]


def test_processes_that_can_not_start_end_it(tmp_path):
    worker = Worker(FakeStore(), processes=1)
    worker.handle("mail")(lambda task: None)
    with pytest.raises(NotPrepared, match="must belong to a module"):
        worker.run()
    unguarded = tmp_path / "unguarded.py"
    unguarded.write_text(UNGUARDED)
    command = [sys.executable, str(unguarded)]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(PROJECT)}, timeout=60, check=False)
    assert ended.returncode == 1


UNGUARDED = """
from taskstore import Worker
from tests.client.deadly import die
from tests.client.fakes import FakeStore

worker = Worker(FakeStore(), processes=1)
worker.handle("mail")(die)
worker.run()
"""


def test_what_was_claimed_ahead_is_left_to_others_when_a_function_is_slow(store, worker, events, monkeypatch):
    monkeypatch.setattr(functions, "LONGEST_WAIT_S", 0.1)

    @worker.handle("mail")
    def send(task):
        if task.text == "slow":
            events[0].wait(PATIENCE_S)

    store.commit(adds=[NewTask(group="mail", priority=1)] * 500)
    store.commit(adds=[NewTask(group="mail", data=b"slow")])
    store.commit(adds=[NewTask(group="mail", priority=-1)] * 50)
    with Running(worker):
        wait_for(lambda: worker.ended.get("done") == 500, "the quick ones")
        wait_for(lambda: sum(task.owner != 0 for task in all_of(store, "mail")) == 1, "that the others are free")
        events[0].set()
        gone(store)


# ---- Functions of a worker say how far they are


@pytest.fixture
def fake() -> FakeStore:
    return FakeStore()


def test_what_could_not_be_sent_is_sent_later_unless_there_is_news(fake):
    reports = Reports(fake)
    reports.note(17, 0.1, "")
    reports.note(18, 0.2, "")
    fake.problem = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        reports.send()
    reports.note(17, 0.5, "")
    fake.problem = None
    reports.send()
    assert sorted(fake.reports) == [(17, 0.5, ""), (18, 0.2, "")]


def test_the_report_of_a_lost_task_is_dropped(fake):
    reports = Reports(fake)
    reports.note(17, 0.1, "")
    fake.problem = NotHeld("task 17 is leased to client 8")
    reports.send()
    fake.problem = None
    reports.send()
    assert fake.reports == []


def test_a_function_without_a_worker_reports_to_nobody():
    Context(1, "mailer").progress(0.5, "half")


@pytest.mark.parametrize(("done", "text"), [(1.5, ""), (float("nan"), ""), ("half", ""), (0.5, "x" * 256)])
def test_a_wrong_report_fails_where_it_is_made(done, text):
    with pytest.raises(InvalidInput):
        Context(1, "mailer").progress(done, text)
