"""Requests in the shape that MassTasker's README still shows: `deleted` holds plain ids."""

import pytest
from django.db import connection
from grpc import StatusCode

from tasks_app.database import COLUMNS

from .client import message, outcome, ref
from .test_update import refused

# What ids may read as, when they are taken for a TaskRef.
GROUP_A = [26, 1, ord("a")]
SHAPES = [
    [1],
    [1, 2, 3],
    [300],
    [18, 0],  # A selector without labels, which matches nothing.
    [16, 5],
    [8, 5, *GROUP_A],  # An id and a group: a reader keeps the last of them.
    [*GROUP_A, 8, 5],
    [*GROUP_A, *GROUP_A],
    [*GROUP_A, 32, 7],  # A group, and a field that there is not.
    [2**63],
]


def older(ids):
    return message("OlderUpdateRequest", deleted=ids).SerializeToString()


@pytest.mark.parametrize("ids", SHAPES)
def test_they_never_delete_a_group(client, ids):
    there = client.create(*["a"] * 3, *["mail"] * 3)
    if ids == [18, 0]:
        client.call("Update", older(ids))
    else:
        assert outcome(refused(client.call, "Update", older(ids)))[0] is StatusCode.INVALID_ARGUMENT
    assert client.ids() == there


def test_ids_that_are_not_packed_are_refused_too(client):
    [mail] = client.create("mail")
    unpacked = bytes([0x10]) + message("TaskRef", id=mail).SerializeToString()[1:]
    assert outcome(refused(client.call, "Update", unpacked))[0] is StatusCode.INVALID_ARGUMENT
    assert client.ids() == [mail]


def test_what_reads_as_one_id_means_an_id(client):
    there = client.create(*["mail"] * 3)
    client.call("Update", older([8, there[1]]))
    assert client.ids() == [there[0], there[2]]


def test_who_holds_just_these_tasks_deletes_no_group(client):
    """Byte for byte it is a reference to the group `a`."""
    kept, _ = client.create("a", "work")
    held = client.query("work", own_for_s=60).id
    for task_id in GROUP_A:
        copy(held, task_id)
    assert message("UpdateRequest", deleted=[ref(group="a")]).SerializeToString() == older(GROUP_A)
    assert outcome(refused(client.call, "Update", older(GROUP_A)))[0] is StatusCode.INVALID_ARGUMENT
    assert client.ids() == sorted([*GROUP_A, kept, held])
    # Whoever means the group says it twice.
    client.update(deleted=[ref(group="a"), ref(group="a")])
    assert client.ids() == sorted([*GROUP_A, held])


def copy(held, task_id):
    """A task like the other one, under a small id, which the store has given out long ago."""
    columns = ", ".join(f'"{name}"' for name in COLUMNS[1:])
    with connection.cursor() as cursor:
        copied = f"INSERT INTO tasks_app_task (id, {columns}) SELECT %s, {columns} FROM tasks_app_task WHERE id = %s"  # noqa: S608 - our own names
        cursor.execute(copied, [task_id, held])
