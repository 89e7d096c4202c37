"""What is committed, by what came of the work."""

from __future__ import annotations

from datetime import timedelta

import pytest

from taskstore import Change, NewTask, Result, Save, Task
from taskstore.worker.functions import verdict
from taskstore.worker.handlers import Handler, How, Outcome, Retries, as_result

pytestmark = pytest.mark.once

CLAIMED_ID, ID = 7, 9  # It was renewed meanwhile.
MAIL = Task.make(ID, group="mail", data="hello", data_type="a/b", priority=3, labels={"tier": "gold", "attempts": "1"})


def handler(*, failed_group="odd", max_attempts=3):
    retries = Retries(backoff=timedelta(milliseconds=500))
    return Handler(group="mail", function=print, failed_group=failed_group, max_attempts=max_attempts, retries=retries)


def ended(outcome, attempt=2):
    return verdict(MAIL, handler(), attempt, outcome, CLAIMED_ID)


def done(returned):
    return ended(Outcome(how=How.DONE, result=as_result(returned)))


def test_what_it_returns_comes_with_the_end_of_the_task():
    sent, config = NewTask(group="sent"), Change(id=3)
    assert done(sent).adds == [sent]
    assert done(iter([sent, config])) == Result(adds=[sent], updates=[config], deletes=[ID], depends=[])
    assert done(Result(deletes=[4], depends=[5, CLAIMED_ID])) == Result(
        adds=[], updates=[], deletes=[4, ID], depends=[5, ID]
    )


def test_the_task_itself_is_named_by_the_id_that_it_had():
    step = done(Change(id=CLAIMED_ID, data=b"step 2"))
    assert step.updates == [Change(id=ID, data=b"step 2", labels={"tier": "gold"})]
    assert step.deletes == []
    moved = done(NewTask(id=CLAIMED_ID, group="sent", labels=MAIL.labels))
    assert moved.adds == [NewTask(id=ID, group="sent", labels={"tier": "gold"})]
    assert moved.deletes == [ID]
    assert done(Result(deletes=[CLAIMED_ID])).deletes == [ID]


@pytest.mark.parametrize("returned", ["sent", b"sent", {"group": "sent"}, 1, [NewTask(group="sent"), "sent"]])
def test_anything_else_is_a_mistake(returned):
    with pytest.raises(TypeError):
        as_result(returned)


def test_the_last_attempt_moves_it_as_it_is_and_it_starts_anew_there():
    failed = ended(Outcome.of(ValueError("no address"), 2, handler().retries), attempt=3)
    there = NewTask(
        id=ID,
        group="odd",
        data=b"hello",
        data_type="a/b",
        error="ValueError: no address",
        labels={"tier": "gold"},
        priority=3,
    )
    assert failed == Result(adds=[there], deletes=[ID])


def test_it_is_saved_at_once_where_the_function_says():
    cause = KeyError("name")
    plain, named, caused = Save(), Save("mail/odd", "who is that?"), Save()
    caused.__cause__ = cause
    adds = [ended(Outcome.of(save, 1, handler().retries), attempt=1).adds[0] for save in (plain, named, caused)]
    assert [(add.group, add.error) for add in adds] == [
        ("odd", "saved for review"),
        ("mail/odd", "who is that?"),
        ("odd", "KeyError: 'name'"),
    ]


@pytest.mark.parametrize("wrong", [{"failed_group": "mail"}, {"max_attempts": 0}])
def test_what_can_not_work_is_refused(wrong):
    with pytest.raises(ValueError, match=r"failed_group|max_attempts"):
        handler(**wrong)
