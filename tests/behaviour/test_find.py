"""Finding tasks by their ids."""

import pytest

from taskstore.errors import InvalidInput

from .values import with_each


@with_each("task_id", [2**63, -(2**63) - 1, 10**30])
def test_an_id_beyond_64_bits_is_bad_input(store, task_id):
    with pytest.raises(InvalidInput) as error:
        store.find([1, task_id])
    assert list(error.value.fields) == ["ids[1]"]
