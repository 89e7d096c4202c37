"""Finding tasks by their ids."""

import pytest

from taskstore.errors import InvalidInput
from taskstore.types.tasks import NewTask

from .people import ANN
from .values import with_each


def test_tasks_come_in_the_order_asked_with_nothing_for_what_is_not_there(store):
    [first, second] = store.commit(owner=ANN, adds=[NewTask(group="mail", data=b"1"), NewTask(group="reports")])
    asked = [second.id, 2**53, first.id, second.id, 0, -1, 2**63 - 1, -(2**63)]
    assert store.find(asked) == [second, None, first, second, None, None, None, None]


def test_no_ids_find_no_tasks(store):
    assert store.find([]) == []


@with_each("task_id", [2**63, -(2**63) - 1, 10**30])
def test_an_id_beyond_64_bits_is_bad_input(store, task_id):
    with pytest.raises(InvalidInput) as error:
        store.find([1, task_id])
    assert list(error.value.fields) == ["ids[1]"]
