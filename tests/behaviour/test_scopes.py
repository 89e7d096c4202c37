"""Who may touch some groups only: a task of another group looks as if it were not there."""

import pytest

from taskstore.errors import CommitRefused
from taskstore.types.tasks import Change, NewTask, Refusal

from .people import ANN

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
