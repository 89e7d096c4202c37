"""The leases of the tasks in work."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from taskstore import StoreUnavailable, Task
from taskstore.worker.lease_keeper import Held, Keeper

from .fakes import FakeStore
from .patience import wait_for

pytestmark = pytest.mark.once

LEASE_MS = 150


@pytest.fixture
def fake() -> FakeStore:
    return FakeStore()


@pytest.fixture
def keeper(fake: FakeStore) -> Iterator[Keeper]:
    keeper = Keeper(fake, LEASE_MS)
    keeper.start()
    yield keeper
    keeper.stop()


def mail(number: int) -> Task:
    return Task.make(id=number, group="mail")


def kept(keeper: Keeper, number: int) -> Held:
    held = Held(mail(number))
    keeper.keep(held)
    return held


def test_all_are_renewed_in_one_commit_and_keep_their_places(fake, keeper):
    held = [kept(keeper, 1), kept(keeper, 2)]
    wait_for(lambda: len(fake.commits) >= 3, "the renewals")
    let_go = [keeper.let_go(each).id for each in held]
    assert fake.commits[0] == [1, 2]
    assert fake.commits[1] == [100, 101]
    assert let_go == [98 + 2 * len(fake.commits), 99 + 2 * len(fake.commits)]


def test_what_was_let_go_is_not_renewed(fake, keeper):
    first, second = kept(keeper, 1), kept(keeper, 2)
    wait_for(lambda: fake.commits, "a renewal")
    keeper.let_go(first)
    renewed = len(fake.commits)
    wait_for(lambda: len(fake.commits) > renewed + 1, "another one")
    assert all(len(ids) == 1 for ids in fake.commits[renewed:])
    assert not second.is_lost


def test_the_lost_one_is_told_and_the_others_go_on(fake, keeper):
    fake.gone = {1}
    lost, other = kept(keeper, 1), kept(keeper, 2)
    wait_for(lambda: lost.is_lost, "the loss")
    wait_for(lambda: other.current.id != 2, "the renewal of the other one")
    assert (lost.is_lost, other.is_lost) == (True, False)
    commits = len(fake.commits)
    keeper.keep(lost)
    wait_for(lambda: len(fake.commits) > commits + 2, "renewals without what is lost")
    assert all(len(ids) == 1 for ids in fake.commits[commits + 1 :])


def test_while_the_store_is_away_it_goes_on_trying_and_says_so_once(fake, keeper, caplog):
    fake.problem = StoreUnavailable("away")
    held = kept(keeper, 1)
    wait_for(lambda: len(fake.commits) > 3, "some tries")
    assert not held.is_lost
    fake.problem = None
    wait_for(lambda: held.current.id != 1, "a renewal")
    said = [record.getMessage() for record in caplog.records]
    assert said == ["the store is unreachable; retrying until it is back: away", "the store is reachable again"]


def test_it_lets_go_only_between_renewals(fake, keeper):
    begun, go_on = threading.Event(), threading.Event()
    commit = fake.commit

    def slow_commit(**asked):
        begun.set()
        go_on.wait(30)
        return commit(**asked)

    fake.commit = slow_commit
    held = kept(keeper, 1)
    assert begun.wait(30)
    let_go: list[Task] = []
    waiting = threading.Thread(target=lambda: let_go.append(keeper.let_go(held)))
    waiting.start()
    time.sleep(0.05)
    assert not let_go
    go_on.set()
    waiting.join(30)
    assert let_go == [Task.make(id=100, group="mail")]
