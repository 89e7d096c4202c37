"""What became of tasks in Django's admin: to be read, changed by nobody."""

import pytest

from tasks_app.models import Task

from .pages import BOB, add, claim, ids_in, text_of

ENDED = "/admin/tasks_app/endedtask/"


def test_it_lists_what_became_of_tasks(viewer):
    first = add()
    second = claim()
    Task.objects.commit(owner=BOB, deletes=[second.id])
    response = viewer.get(ENDED)
    assert ids_in(response) == [second.id, first.id]
    assert "deleted - " in text_of(response)
    assert f"claimed {second.id} " in text_of(response)
    assert f"client {BOB}" in text_of(response)


@pytest.mark.parametrize("where", ["origin=999", f"origin={10**30}"])
def test_a_chain_that_is_not_there_is_empty(viewer, where):
    add()
    claim()
    assert ids_in(viewer.get(f"{ENDED}?{where}")) == []
