"""What came of tasks is written, whatever is wrong with one of them."""

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from taskstore import (
    CommitRefused,
    CommitUnknown,
    InvalidInput,
    NotAllowed,
    Refusal,
    Result,
    StoreUnavailable,
    Task,
    UnexpectedAnswer,
)
from taskstore.types.history import End, History, Step
from taskstore.types.tasks import Change, Ending, NewTask
from taskstore.worker import settling
from taskstore.worker.lease_keeper import Held, Keeper
from taskstore.worker.settling import Entry, Settling

pytestmark = pytest.mark.once

GONE, TOO_LARGE, FORBIDDEN, NONSENSE, MISSING, FAILING = 2, 3, 7, 8, 9, 10
PATIENCE_S = 30


class Store:
    """Refuses what is gone, does not take what is too large, and is away for the first calls."""

    problem: Exception = StoreUnavailable("away")

    def __init__(self, away=0):
        self.away = away
        self.commits = []
        self.sent = []  # The same, with all that is in them.
        self.id = 5
        self.steps = {}  # Of the history, by id.

    def commit(self, *, updates, adds=(), deletes=(), depends=(), client_id=None, key=""):
        ids = [change.id for change in (*adds, *updates)]
        self.commits.append(ids)
        self.sent.append((ids, list(deletes), list(depends), key))
        if self.away:
            self.away -= 1
            raise self.problem
        if TOO_LARGE in ids:
            raise InvalidInput({"adds[0].data": ["too large"]})
        if FORBIDDEN in ids:
            raise NotAllowed("the token does not allow the group")
        if FAILING in ids:
            raise UnexpectedAnswer("internal error")
        if NONSENSE in ids:
            raise TypeError("can't encode that")
        if MISSING in depends:
            raise CommitRefused(Refusal(depends=(MISSING,)))
        if GONE in (*ids, *depends):
            raise CommitRefused(Refusal(changes=(GONE,)))
        if GONE in deletes:
            raise CommitRefused(Refusal(deletes=(GONE,)))
        return [Task.make(id=id + 100, group="mail") for id in ids]

    def history(self, id):
        return self.steps.get(id)


class Written:
    """What was heard of each entry."""

    def __init__(self):
        self.by_id = {}

    def entry(self, id, kind=Change, instead=None):
        def refused(problem):
            self.by_id[id] = type(problem)
            return instead

        change = kind(id=id, group="mail", data=b"1")
        return Entry.of(change, written=lambda tasks: self.by_id.update({id: tasks[0].id}), refused=refused)


def keeper_of(store: Any) -> Keeper:
    return Keeper(store, 60_000)


def settling_of(store: Any, keeper: Keeper | None = None, *, is_patient: bool = True, **more: Any) -> Settling:
    return Settling(store, keeper or keeper_of(store), lambda: is_patient, **more)


def write(store, entries, is_patient=True):
    settling_of(store, is_patient=is_patient).write(entries)


def test_all_go_in_one_commit():
    store, written = Store(), Written()
    write(store, [written.entry(1), written.entry(4, NewTask)])
    assert len(store.commits) == 1
    assert written.by_id == {1: 101, 4: 104}


def test_what_is_refused_does_not_keep_the_others():
    store, written = Store(), Written()
    write(store, [written.entry(id) for id in (1, GONE, TOO_LARGE, 4)])
    assert written.by_id == {1: 101, GONE: CommitRefused, TOO_LARGE: InvalidInput, 4: 104}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (Result(updates=[Change(id=FORBIDDEN)]), NotAllowed),
        (Result(updates=[Change(id=NONSENSE)]), TypeError),
    ],
)
def test_what_the_store_does_not_name_is_found(wrong, problem):
    store, written = Store(), Written()
    heard: list[Exception] = []
    bad = Entry(commit=wrong, refused=heard.append)
    write(store, [*map(written.entry, (11, 12, 13)), bad, *map(written.entry, range(14, 30))])
    assert written.by_id == {id: id + 100 for id in range(11, 30)}
    assert [type(each) for each in heard] == [problem]
    assert len(store.commits) < 12


def test_a_task_to_depend_on_that_is_missing_is_named():
    store, written = Store(), Written()
    heard: list[Exception] = []
    bad = Entry(commit=Result(updates=[Change(id=99)], depends=[MISSING]), refused=heard.append)
    write(store, [*map(written.entry, range(11, 60)), bad, *map(written.entry, range(60, 99)), *[written.entry(GONE)]])
    assert written.by_id == {id: id + 100 for id in range(11, 99)} | {GONE: CommitRefused}
    assert [problem.refusal for problem in heard if isinstance(problem, CommitRefused)] == [Refusal(depends=(MISSING,))]
    assert len(store.commits) == 3


def test_what_is_refused_may_have_something_else_written_instead():
    store, written = Store(), Written()
    write(store, [written.entry(1), written.entry(GONE, instead=written.entry(5)), written.entry(4)])
    assert written.by_id == {1: 101, GONE: CommitRefused, 5: 105, 4: 104}


def test_an_entry_hears_of_all_that_it_has_made():
    heard: list[Sequence[Task]] = []
    several = Result(adds=[NewTask(id=1, group="mail"), NewTask(id=4, group="mail")], updates=[Change(id=5)])
    entries = [
        Entry(commit=Result(adds=several.adds, updates=several.updates, deletes=[1, 4]), written=heard.append),
        Entry(commit=Result(updates=[Change(id=6)]), written=heard.append),
    ]
    write(Store(), entries)
    assert [[task.id for task in tasks] for tasks in heard] == [[101, 104, 105], [106]]


def test_a_server_that_fails_is_not_asked_again_for_each():
    """No entry is to blame, so none is to be looked for."""
    store, written = Store(), Written()
    write(store, [written.entry(id) for id in (11, FAILING, 12, 13)])
    assert len(store.commits) == 1
    assert set(written.by_id.values()) == {UnexpectedAnswer}


def test_a_store_that_is_away_is_waited_for(monkeypatch):
    monkeypatch.setattr(settling, "SOON_S", 0.01)
    store, written = Store(away=2), Written()
    write(store, [written.entry(1)])
    assert written.by_id == {1: 101}


def test_but_not_by_who_has_to_end():
    store, written = Store(away=9), Written()
    write(store, [written.entry(1)], is_patient=False)
    assert (written.by_id, len(store.commits)) == ({1: StoreUnavailable}, 1)


def at_the_second_commit(store: Store, happens) -> None:
    """Have something happen while the second commit is on its way."""
    commit = store.commit

    def then(**asked):
        if len(store.commits) == 1:
            happens()
        return commit(**asked)

    store.commit = then  # type: ignore[method-assign]


def test_a_commit_is_sent_again_as_it_was_until_the_store_has_answered(monkeypatch):
    monkeypatch.setattr(settling, "SOON_S", 0.01)
    store, written = Store(away=3), Written()
    work = settling_of(store)
    at_the_second_commit(store, lambda: work.put([(partial(written.entry, 12), 0)]))
    work.start()
    work.put([(partial(written.entry, 11), 0)])
    assert work.end(time.monotonic() + PATIENCE_S)
    assert [ids for ids, *_ in store.sent] == [[11], [11], [11], [11], [12]]
    assert len({key for *_, key in store.sent}) == 2
    assert store.sent[0] == store.sent[3]


@pytest.mark.parametrize(
    ("client", "how", "is_last", "heard"),
    [
        (5, "deleted", True, []),
        (5, "deleted", False, [CommitUnknown]),
        (6, "deleted", True, [CommitRefused]),
        (5, "claimed", True, [CommitRefused]),
        (5, "renewed", True, [CommitRefused]),
        (None, "", True, [CommitRefused]),
    ],
)
def test_the_history_decides_where_the_store_has_forgotten_the_key(monkeypatch, client, how, is_last, heard):
    monkeypatch.setattr(settling, "SOON_S", 0.01)
    store = Store(away=1)
    problems: list[type] = []
    written: list[Sequence[Task]] = []
    store.problem = CommitUnknown("no answer")
    if client:
        end = End(at_ms=0, commit=1, client_id=client, how=Ending(how), successor=None, operator="", reason="")
        state: dict[str, Any] = {
            "group": "mail",
            "available_at_ms": 0,
            "owner": 5,
            "error": "",
            "priority": 0,
            "claims": 1,
        }
        step = Step(id=GONE, made_at_ms=0, made_by_commit=0, ended=end, **state)
        store.steps[GONE] = History(id=GONE, origin=GONE, created_at_ms=0, steps=(step,))

    def refused(problem):
        problems.append(type(problem))

    entry = Entry(commit=Result(deletes=[GONE]), written=written.append, refused=refused, is_last=is_last)
    write(store, [entry])
    assert (problems, written) == (heard, [] if heard else [[]])


def test_without_a_doubt_the_history_is_not_asked():
    store: Any = Store()
    written = Written()
    store.history = None
    write(store, [written.entry(GONE)])
    assert written.by_id == {GONE: CommitRefused}


def deleting(*ids, depends=(), keys=(), frees_keys=False):
    adds = [NewTask(group="mail", unique=key) for key in keys]
    return Entry(commit=Result(adds=adds, deletes=ids, depends=depends), frees_keys=frees_keys)


@pytest.mark.parametrize(
    ("entries", "commits"),
    [
        ([deleting(11), deleting(12, depends=[20]), deleting(13, depends=[20])], 1),
        ([deleting(11, 12), deleting(12)], 2),
        ([deleting(11), deleting(12, depends=[11])], 2),
        ([deleting(12, depends=[11]), deleting(11)], 2),
        ([deleting(12, depends=[11]), deleting(11), deleting(11, 13), deleting(14)], 3),
        ([deleting(11, keys=["a"]), deleting(12, keys=["b"])], 1),
        ([deleting(11, keys=["a"]), deleting(12, keys=["a"])], 2),
        ([deleting(11, keys=["a"]), deleting(12, frees_keys=True)], 2),
        ([deleting(11, frees_keys=True), deleting(12, keys=["a"])], 2),
        ([deleting(11, frees_keys=True), deleting(12, frees_keys=True)], 1),
    ],
)
def test_what_is_about_the_same_goes_in_separate_commits_in_order(entries, commits):
    store = Store()
    write(store, entries)
    assert len(store.sent) == commits
    assert [id for _, deletes, *_ in store.sent for id in deletes] == [id for entry in entries for id in entry.ids]


def test_what_waits_for_the_next_commit_has_its_lease_renewed():
    """Until it is planned again, with the id that it has then."""
    store: Any = Store()
    keeper = keeper_of(store)
    work = settling_of(store, keeper)
    held = Held(Task.make(id=12, group="mail"))
    keeper.keep(held)
    commit = store.commit

    def plan():
        return Entry(commit=Result(deletes=[keeper.let_go(held).id], depends=[20]), held=held)

    def renewing(**asked):
        store.commit = commit
        keeper._renew_all()
        return commit(**asked)

    store.commit = renewing
    work.put([(lambda: deleting(20), 0), (plan, 0)])
    work.start()
    assert work.end(time.monotonic() + PATIENCE_S)
    assert [deletes for _, deletes, *_ in store.sent] == [[], [20], [112]]


def test_a_worker_with_much_to_write_is_told_when_it_is_less(monkeypatch):
    store, room = Store(), threading.Event()
    work = settling_of(store, on_room=room.set)
    work.put([(partial(deleting, id), 0) for id in range(1_000, 2_001)])
    assert work.is_full
    work.put([(partial(deleting, 2_001), 40 * 2**20)])
    work.start()
    assert room.wait(PATIENCE_S)
    assert work.end(time.monotonic() + PATIENCE_S)
    assert not work.is_full


def test_much_data_is_much_to_write():
    work = settling_of(Store())
    work.put([(partial(deleting, 11), 40 * 2**20)])
    assert work.is_full
