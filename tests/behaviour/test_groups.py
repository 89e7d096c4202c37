"""Listing groups and the tasks of one."""

import pytest

from taskstore.errors import CommitRefused, InvalidInput
from taskstore.types.tasks import Change, NewTask, Refusal

from .people import ANN, BOB
from .values import with_each


def add(store, *groups):
    return store.commit(owner=ANN, adds=[NewTask(group=group) for group in groups])


def test_a_group_exists_while_a_task_carries_its_name(store):
    assert store.groups() == []
    [mail, _] = add(store, "mail", "reports")
    assert store.groups() == ["mail", "reports"]
    [held] = store.claim("mail", owner=BOB)
    assert store.groups() == ["mail", "reports"]
    store.commit(owner=BOB, deletes=[held.id])
    assert store.groups() == ["reports"]
    assert mail.group == "mail"


@with_each(
    "name",
    [
        "a/b",
        "/",
        "a b",
        "100%",
        "%2F",
        "é",
        "a?b",
        "a#b",
        "\t\n",
        "-",
        "..x",
        "\U0001f4ec",
        "'\";",
        "x" * 255,
        "é" * 255,
    ],
)
def test_a_name_may_hold_any_character(store, name):
    [task] = add(store, name)
    assert name in store.groups()
    assert store.group(name) == [task]
    [held] = store.claim(name, owner=BOB)
    assert store.group(name, owned=True) == [held]


def test_a_negative_limit_is_bad_input(store):
    with pytest.raises(InvalidInput) as error:
        store.group("mail", limit=-1)
    assert list(error.value.fields) == ["limit"]


@with_each("name", ["a\0b", "x" * 256])
def test_a_name_that_no_group_can_have_is_bad_input(store, name):
    with pytest.raises(InvalidInput) as error:
        store.group(name)
    assert list(error.value.fields) == ["name"]


# ---- Who may touch some groups only: a task of another group looks as if it were not there


FOREIGN = ["payroll", "PAY", "pay/x", "Pay"]


@pytest.fixture
def tasks(store):
    return {
        name: store.commit(owner=ANN, adds=[NewTask(group=name)])[0] for name in ["pay", "PAY/x", "pay/y", *FOREIGN]
    }


def test_a_task_of_another_group_is_not_there(store, tasks):
    mine = store.within("pay")
    foreign = [tasks[name].id for name in FOREIGN]
    assert mine.find([tasks["pay"].id, *foreign]) == [tasks["pay"], *[None] * len(foreign)]
    with pytest.raises(CommitRefused) as error:
        mine.commit(
            owner=ANN,
            updates=[Change(id=foreign[0])],
            deletes=[foreign[1], tasks["pay"].id],
            depends=[foreign[2], foreign[3]],
        )
    assert error.value.refusal == Refusal(
        changes=(foreign[0],), deletes=(foreign[1],), depends=(foreign[2], foreign[3])
    )
    assert store.find(foreign) == [tasks[name] for name in FOREIGN]


def test_a_prefix_is_told_by_case(store, tasks):
    mine = store.within("pay/*")
    asked = [tasks[name].id for name in ("pay/x", "PAY/x", "pay", "payroll")]
    assert mine.find(asked) == [tasks["pay/x"], None, None, None]
    assert mine.history(tasks["PAY/x"].id) is None
    assert len(mine.history(tasks["pay/x"].id)) == 1


def test_history_shows_only_the_steps_in_groups_of_the_scope(store, tasks):
    task = tasks["payroll"]
    [moved] = store.commit(owner=ANN, adds=[NewTask(group="pay", id=task.id)], deletes=[task.id])
    assert [step.id for step in store.within("pay").history(moved.id)] == [moved.id]
    assert [step.id for step in store.within("payroll").history(task.id)] == [task.id]
    assert store.within("payroll").history(moved.id) is None
    assert [step.id for step in store.history(task.id)] == [task.id, moved.id]
