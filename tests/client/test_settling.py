"""What came of tasks is written, whatever is wrong with one of them, by a server of ours."""

import threading
import time
from functools import partial

import pytest

from taskstore import (
    Change,
    Client,
    CommitRefused,
    CommitUnknown,
    InvalidInput,
    NewTask,
    Result,
    StoreUnavailable,
    Worker,
)
from taskstore.worker import settling
from taskstore.worker.lease_keeper import Held, Keeper
from taskstore.worker.settling import Entry, Settling

from .patience import PATIENCE_S, wait_for

pytestmark = pytest.mark.once


class Lossy:
    """A client whose answers to the first commits get lost. The store may forget the keys of what is repeated."""

    def __init__(
        self, store: Client, lost: int = 0, problem: Exception | None = None, *, forgets: bool = False
    ) -> None:
        self._store, self._lost, self._forgets = store, lost, forgets
        self._problem = problem or StoreUnavailable("away")
        self.keys: list[str] = []
        self.sizes: list[int] = []

    def __getattr__(self, name):
        return getattr(self._store, name)

    def commit(self, *, key="", **asked):
        is_again = key in self.keys
        self.keys.append(key)
        self.sizes.append(len(asked["deletes"]))
        done = self._store.commit(key="" if is_again and self._forgets else key, **asked)
        if len(self.keys) <= self._lost:
            raise self._problem
        return done


@pytest.fixture
def held(store):
    """Tasks of this client."""
    store.commit(adds=[NewTask(group="mail", data=str(number).encode()) for number in range(30)])
    return store.claim("mail", limit=30)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(settling, "SOON_S", 0.01)


def settling_of(store, keeper=None):
    return Settling(store, keeper or Keeper(store, 60_000), lambda: True)


def test_a_few_results_wait_for_others_where_many_come(store, held):
    commits = Lossy(store)
    heard: list[object] = []
    settling = Settling(commits, Keeper(store, 60_000), lambda: True, rest_s=lambda: 0.3)
    settling.start()
    for task in held[:6]:
        settling.put([(partial(ending, task, heard), 0)])
        time.sleep(0.01)
    assert settling.end(time.monotonic() + 30)
    assert len(heard) == 6
    assert len(commits.keys) == 1


def ending(task, heard, group="sent"):
    """Delete a task and add a note of it."""
    commit = Result(adds=[NewTask(group=group, data=task.data)], deletes=[task.id])
    return Entry(
        commit=commit, written=heard.append, refused=lambda problem: heard.append(type(problem)), frees_keys=False
    )


def test_what_is_refused_does_not_keep_the_others(store, held):
    store.delete(held[3])
    lossy = Lossy(store)
    heard: list[object] = []
    settling_of(lossy).write([ending(task, heard, "x" * 300 if task == held[7] else "sent") for task in held])
    assert [heard.count(kind) for kind in (CommitRefused, InvalidInput)] == [1, 1]
    lost = {held[3].text, held[7].text}
    assert {task.text for task in store.group("sent")} == {task.text for task in held} - lost
    assert len(lossy.keys) < 14


def test_what_is_refused_may_have_something_else_written_instead(store, held):
    heard: list[object] = []
    bad = Entry(commit=Result(deletes=[held[0].id], depends=[10**12]), refused=lambda _: ending(held[0], heard))
    settling_of(store).write([bad])
    assert [task.text for task in store.group("sent")] == [held[0].text]


def test_a_commit_is_sent_again_as_it_was_until_the_store_has_answered(store, held):
    lossy = Lossy(store, lost=3)
    heard: list[object] = []
    settling_of(lossy).write([ending(task, heard) for task in held])
    assert len(set(lossy.keys)) == 1 < len(lossy.keys)
    assert len(list(store.group("sent"))) == 30
    assert CommitRefused not in heard


@pytest.mark.parametrize(("is_own", "is_last"), [(True, True), (True, False), (False, True)])
def test_the_history_decides_where_the_store_has_forgotten_the_key(store, token, held, is_own, is_last):
    heard: list[object] = []
    entry = ending(held[0], heard)
    entry.is_last = is_last
    if not is_own:
        store.release(held[0])
        with Client(store.url, token=token, client_id=77) as other:
            other.delete(*other.claim("mail"))
    settling_of(Lossy(store, lost=1, problem=CommitUnknown("no answer"), forgets=True)).write([entry])
    expected: list[object] = [[]] if is_last else [CommitUnknown]
    assert heard == (expected if is_own else [CommitRefused])
    assert len(list(store.group("sent"))) == is_own


def entry_of(ids=(), depends=(), keys=(), *, frees_keys=False):
    adds = [NewTask(group="sent", unique=key) for key in keys]
    return Entry(commit=Result(adds=adds, deletes=ids, depends=depends), frees_keys=frees_keys)


@pytest.mark.parametrize(
    ("entries", "commits"),
    [
        ([([1],), ([2], [9]), ([3], [9])], 1),
        ([([1, 2],), ([2],)], 2),
        ([([1],), ([2], [1])], 2),
        ([([2], [1]), ([1],)], 2),
        ([([1], [], ["a"]), ([2], [], ["b"])], 1),
        ([([1], [], ["a"]), ([2], [], ["a"])], 2),
    ],
)
def test_what_is_about_the_same_goes_in_separate_commits_in_order(store, held, entries, commits):
    lossy = Lossy(store)
    made = [
        entry_of([held[id].id for id in ids], [held[id].id for id in depends], *keys)
        for ids, depends, *keys in ((*entry, *[()] * (2 - len(entry))) for entry in entries)
    ]
    settling_of(lossy).write(made)
    assert len(lossy.keys) == commits


def test_what_frees_a_key_goes_before_what_takes_one(store, held):
    for entries in ([entry_of([held[0].id], keys=["a"]), entry_of([held[1].id], frees_keys=True)],
                    [entry_of([held[2].id], frees_keys=True), entry_of([held[3].id], keys=["b"])]):  # fmt: skip
        lossy = Lossy(store)
        settling_of(lossy).write(entries)
        assert lossy.sizes == [1, 1]


def test_what_waits_for_the_next_commit_has_its_lease_renewed(store, held):
    """Until it is planned again, with the id that it has then."""
    keeper = Keeper(store, 60_000)
    lossy, waiting = Lossy(store), Held(held[1])
    keeper.keep(waiting)
    work, commit = settling_of(lossy, keeper), lossy.commit

    def renewing(**asked):
        lossy.commit = commit  # type: ignore[method-assign]
        keeper._renew_all()
        return commit(**asked)

    def plan():
        return Entry(commit=Result(deletes=[keeper.let_go(waiting).id]), held=waiting)

    lossy.commit = renewing  # type: ignore[method-assign]
    work.put([(lambda: entry_of([held[2].id], keys=["a"]), 0), (plan, 0)])
    work.start()
    assert work.end(time.monotonic() + PATIENCE_S)
    steps = store.history(held[1].id).steps
    assert [step.ended.how for step in steps[1:]] == ["renewed", "deleted"]


def test_a_renewal_tells_what_was_cancelled_and_what_was_changed(store, held):
    """Before the news of cancelled tasks comes."""
    keeper = Keeper(store, 60_000)
    cancelled, changed = Held(held[0]), Held(held[1])
    keeper.keep(cancelled, changed)
    store.cancel([held[0].id])
    store.commit(deletes=[held[1].id])
    keeper._renew_all()
    assert [(each.is_lost, each.is_cancelled) for each in (cancelled, changed)] == [(True, True), (True, False)]


def test_a_worker_claims_no_more_while_it_can_not_write_what_it_has_done(store):
    """Once a thousand results wait, and goes on when the store takes them."""
    may_write = threading.Event()

    class Slow(Lossy):
        def commit(self, **asked):
            may_write.wait(PATIENCE_S)
            return super().commit(**asked)

    for _ in range(4):
        store.commit(adds=[NewTask(group="quick")] * 1_000)
    worker = Worker(Slow(store), threads=300, lease_ms=600_000, wait_ms=200)

    @worker.handle("quick")
    async def nothing(task):
        pass

    thread = threading.Thread(target=worker.run, kwargs={"until_empty": True})
    thread.start()
    try:
        wait_for(lambda: claimed(store) > 1_000, "a thousand claims")
        time.sleep(1)
        assert claimed(store) < 3_000
    finally:
        may_write.set()
        thread.join(PATIENCE_S)
    assert not list(store.group("quick", owned=True, limit=1))


def claimed(store):
    return sum(each.claimed for each in store.stats().groups if each.group == "quick")


def test_of_an_update_that_is_written_the_history_tells_the_new_task(store, held):
    heard: list[object] = []
    entry = Entry.of(Change(id=held[0].id, data=b"new", timespec_ms=-60_000), written=heard.append)
    settling_of(Lossy(store, lost=1, problem=CommitUnknown("no answer"), forgets=True)).write([entry])
    assert heard == [store.tasks([heard[0][0].id])]  # type: ignore[index]
    assert heard[0][0].text == "new"  # type: ignore[index]
