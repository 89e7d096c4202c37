"""What came of jobs is written, whatever is wrong with one of them."""

import pytest

from taskstore import Task
from taskstore.errors import CommitRefused, InvalidInput, StoreUnavailable
from taskstore.jobs import results
from taskstore.jobs.results import Entry, Ledger
from taskstore.types.tasks import Change, NewTask, Refusal
from taskstore.worker.lease_keeper import Outage

pytestmark = pytest.mark.once

GONE, TOO_LARGE = 2, 3


class Store:
    """Refuses what is gone, does not take what is too large, and is away for the first calls."""

    def __init__(self, away=0):
        self.away = away
        self.commits = []

    def commit(self, *, adds, updates, deletes, client_id):
        ids = [change.id for change in (*adds, *updates)]
        self.commits.append(ids)
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        if TOO_LARGE in ids:
            raise InvalidInput({"adds[0].data": ["too large"]})
        if GONE in ids:
            raise CommitRefused(Refusal(changes=(GONE,)))
        assert set(deletes) == {add.id for add in adds}
        return [Task.make(id=id + 100, group="mail") for id in ids]


class Written:
    """What was heard of each entry."""

    def __init__(self):
        self.by_id = {}

    def entry(self, id, kind=Change):
        change = kind(id=id, group="mail", data=b"1")
        return Entry(
            change=change,
            written=lambda task: self.by_id.update({id: task.id}),
            refused=lambda problem: self.by_id.update({id: type(problem)}),
        )


def write(store, entries, is_patient=True):
    Ledger(store, lambda: is_patient, Outage()).write(entries)


def test_all_go_in_one_commit():
    store, written = Store(), Written()
    write(store, [written.entry(1), written.entry(4, NewTask)])
    assert len(store.commits) == 1
    assert written.by_id == {1: 101, 4: 104}


def test_what_is_refused_does_not_keep_the_others():
    store, written = Store(), Written()
    write(store, [written.entry(id) for id in (1, GONE, TOO_LARGE, 4)])
    assert written.by_id == {1: 101, GONE: CommitRefused, TOO_LARGE: InvalidInput, 4: 104}


def test_a_store_that_is_away_is_waited_for(monkeypatch):
    monkeypatch.setattr(results, "SOON_S", 0.01)
    store, written = Store(away=2), Written()
    write(store, [written.entry(1)])
    assert written.by_id == {1: 101}


def test_but_not_by_who_has_to_end():
    store, written = Store(away=9), Written()
    write(store, [written.entry(1)], is_patient=False)
    assert (written.by_id, len(store.commits)) == ({1: StoreUnavailable}, 1)
