"""A task in work: what its lease does while the work runs, and how it ends."""

import time
from datetime import timedelta

import grpc
import pytest

from taskstore.masstasker.client import (
    LEASE,
    LeaseLost,
    NotFound,
    Refused,
    TaskRef,
    Unavailable,
    Unrecoverable,
    create,
    delete,
    move,
    new_task,
    require,
    update,
)
from taskstore.types.tasks import State

from .seeing import contents, states

pytestmark = pytest.mark.once

SHORT = timedelta(seconds=0.3)
PATIENCE_S = 30


def wait_for(condition):
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def gone():
    """A task that is not there, as one that somebody else was done with."""
    task = new_task("mail")
    task.id = 10**9
    return task


def take_away(store):
    store.delete(TaskRef(group="mail"))


def test_a_lease_is_renewed_until_the_work_is_done_and_then_the_task_is_gone(store, mail):
    ends_at = mail.not_before.ToNanoseconds()
    with store.lease(mail, SHORT):
        before = mail.id
        wait_for(lambda: mail.id > before + 4)  # More than a whole time of the lease.
        assert (states("mail"), store.query("mail")) == ([State.CLAIMED], None)
        assert mail.not_before.ToNanoseconds() < ends_at
    assert contents("mail") == []


def test_what_came_of_it_is_committed_with_the_end_of_the_task(store, mail):
    with store.lease(mail, SHORT) as lease:
        lease.commit(create(new_task("sent", b"HELLO")))
        assert (contents("mail"), contents("sent")) == ([], [b"HELLO"])
        time.sleep(SHORT.total_seconds())
    assert (contents("mail"), contents("sent")) == ([], [b"HELLO"])


@pytest.mark.parametrize("change", [lambda mail: move("sent", mail), lambda mail: delete(mail)])
def test_a_commit_may_say_itself_what_becomes_of_the_task(store, mail, change):
    with store.lease(mail) as lease:
        lease.commit(change(mail))
    assert contents("mail") == []


def work(store, mail, do, *, own_for=LEASE, error_group=""):
    with store.lease(mail, own_for, error_group) as lease:
        do(lease)


def until_told(lease):
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        lease.check()
        time.sleep(0.01)


def test_a_lost_lease_is_told_within_the_work_and_at_its_end(store, mail):
    def lose(lease):
        take_away(store)
        with pytest.raises(LeaseLost):
            until_told(lease)

    with pytest.raises(LeaseLost):
        work(store, mail, lose, own_for=SHORT)


def test_a_lease_that_was_lost_since_the_last_renewal_commits_nothing(store, mail):
    def commit(lease):
        take_away(store)
        lease.commit(create(new_task("sent")))

    with pytest.raises(LeaseLost):
        work(store, mail, commit)
    assert contents("sent") == []


@pytest.mark.parametrize(("operation", "refusal"), [(delete, NotFound), (require, Refused)])
def test_a_commit_that_is_refused_for_another_reason_can_be_tried_again(store, mail, operation, refusal):
    with store.lease(mail) as lease:
        with pytest.raises(refusal):
            lease.commit(operation(gone()), create(new_task("sent", b"first")))
        assert states("mail") == [State.CLAIMED]
        lease.commit(create(new_task("sent", b"second")))
    assert (contents("mail"), contents("sent")) == ([], [b"second"])


def test_broken_work_goes_to_the_error_group_as_it_came(store, mail):
    with store.lease(mail, error_group="mail/failed"):
        mail.data.value = b"half done"
        raise Unrecoverable("no address")
    [failed] = store.debug().tasks
    assert (failed.group, failed.error, failed.data.value) == ("mail/failed", "no address", b"hello")


@pytest.mark.parametrize("problem", [OSError("away"), KeyboardInterrupt()])
def test_work_that_another_try_may_mend_is_given_back_as_it_came(store, mail, problem):
    def fail(lease):
        mail.data.value = b"half done"
        raise problem

    with pytest.raises(type(problem)):
        work(store, mail, fail, error_group="mail/failed")
    assert (states("mail"), contents("mail")) == ([State.READY], [b"hello"])


def test_a_problem_after_the_commit_changes_nothing(store, mail):
    def fail_late(lease):
        lease.commit(move("sent", mail))
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        work(store, mail, fail_late)
    assert contents("sent") == [b"hello"]


def test_a_half_done_change_is_not_renewed_but_may_be_committed(store, mail):
    with store.lease(mail, SHORT) as lease:
        before = mail.id
        mail.data.value = b"half done"
        wait_for(lambda: mail.id > before)
        assert contents("mail") == [b"hello"]
        lease.commit(update(mail))
    assert contents("mail") == [b"half done"]


def test_a_server_that_is_away_for_a_moment_does_not_end_it(store, mail, monkeypatch):
    reown, problems = store.reown, [Unavailable("away", grpc.StatusCode.UNAVAILABLE)]

    def renew(*arguments):
        if problems:
            raise problems.pop()
        reown(*arguments)

    monkeypatch.setattr(store, "reown", renew)
    with store.lease(mail, SHORT) as lease:
        before = mail.id
        wait_for(lambda: mail.id > before)
        lease.check()
    assert contents("mail") == []
