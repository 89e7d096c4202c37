"""What came of tasks is written, whatever is wrong with one of them."""

from collections.abc import Sequence

import pytest

from taskstore import CommitRefused, InvalidInput, NotAllowed, Refusal, Result, StoreUnavailable, Task, UnexpectedAnswer
from taskstore.types.tasks import Change, NewTask
from taskstore.worker import settling
from taskstore.worker.lease_keeper import Outage
from taskstore.worker.settling import Entry, Settling

pytestmark = pytest.mark.once

GONE, TOO_LARGE, FORBIDDEN, NONSENSE, MISSING, FAILING = 2, 3, 7, 8, 9, 10


class Store:
    """Refuses what is gone, does not take what is too large, and is away for the first calls."""

    def __init__(self, away=0):
        self.away = away
        self.commits = []

    def commit(self, *, adds, updates, deletes, depends, client_id):
        ids = [change.id for change in (*adds, *updates)]
        self.commits.append(ids)
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
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
        assert set(deletes) == {add.id for add in adds}
        return [Task.make(id=id + 100, group="mail") for id in ids]


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


def write(store, entries, is_patient=True):
    Settling(store, Outage(), lambda: is_patient).write(entries)


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
        (Result(updates=[Change(id=2)], depends=[MISSING]), CommitRefused),
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
