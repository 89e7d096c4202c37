"""Data as protobuf's Any, byte for byte, beside the other ways in."""

import base64
from typing import Any

import pytest
from django.db import connection
from grpc import StatusCode

from tasks_app.database import COLUMNS
from tasks_app.models import Scope, Task
from tests.people import make_user, signed_in
from tests.rest_api.api import Api

from ..console.store import add
from .client import message, outcome, ref, theirs
from .test_update import refused

UNKNOWN: dict[str, Any] = {"type_url": "type.nowhere.example/no.such.Type", "value": b"\xff\x00\xfe\x0a"}


@pytest.mark.parametrize("value", [UNKNOWN["value"], b"", b"\0", bytes(range(256)) * 400])
@pytest.mark.parametrize("type_url", [UNKNOWN["type_url"], ""])
def test_an_any_comes_back_as_it_went(client, type_url, value):
    client.create("mail", data={"type_url": type_url, "value": value})
    read, owned = client.query("mail"), client.query("mail", own_for_s=60)
    for task in (read, owned, *client.debug().tasks):
        assert (task.data.type_url, task.data.value) == (type_url, value)


def test_an_empty_any_stays_and_no_any_stays_none(client):
    client.create("mail", data={})
    client.create("reports")
    for group, has_data in (("mail", True), ("reports", False)):
        for task in (client.query(group), client.query(group, own_for_s=60)):
            assert (task.HasField("data"), task.data.type_url, task.data.value) == (has_data, "", b"")
    copies = client.update(created=client.debug("mail").tasks)
    assert [task.HasField("data") for task in client.debug("mail").tasks if task.id in copies] == [True]


def test_an_empty_any_shows_in_rest_and_stays_one_when_sent_back(client):
    [task_id] = client.create("mail", data={})
    status, shown = Api(Scope.READ).get(f"/task/{task_id}")
    assert (status, shown["data"], shown["data_type"]) == (200, "", "/")
    [same] = Api().committed(adds=[shown], deletes=[task_id])
    assert client.query("mail").HasField("data")
    page = signed_in(make_user("ann", "admin", "see payloads")).get(f"/console/task/{same['id']}")
    assert page.status_code == 200


def test_an_unknown_type_shows_in_rest_and_in_the_console(client):
    [task_id] = client.create("mail", data=UNKNOWN)
    status, shown = Api(Scope.READ).get(f"/task/{task_id}")
    assert (status, shown["data"], shown["data_type"]) == (200, None, UNKNOWN["type_url"])
    assert base64.b64decode(shown["data_base64"]) == UNKNOWN["value"]
    page = signed_in(make_user("ann", "admin", "see payloads")).get(f"/console/task/{task_id}")
    assert page.status_code == 200
    assert UNKNOWN["type_url"] in page.content.decode()


def test_a_message_packed_by_a_client_unpacks(client):
    inner = message("LabelSelector", labels={"colour": "red"})
    task = message("Task", group="mail")
    task.data.Pack(inner)
    client.update(created=[task])
    unpacked = theirs()["LabelSelector"]()
    assert client.query("mail").data.Unpack(unpacked)
    assert unpacked == inner


# ---- Dead letters through gRPC: made there like anywhere, and shown to nobody


def letter(client):
    [old] = client.create("mail")
    [there] = client.update(created=[message("Task", id=old, group="mail/failed", error="boom")], deleted=[old])
    return there


def test_it_makes_one_and_does_not_show_where_it_failed(client):
    there = letter(client)
    [shown] = client.debug("mail/failed").tasks
    assert (shown.id, dict(shown.labels)) == (there, {})
    assert Task.objects.get().labels == {"failed_from": "mail"}


def test_a_successor_in_the_same_group_keeps_it(client):
    there = letter(client)
    again = message("Task", id=there, group="mail/failed", error="boom", labels={"a": "b", "failed_from": "secret"})
    client.update(created=[again], deleted=[there])
    assert Task.objects.get().labels == {"a": "b", "failed_from": "mail"}


def test_it_is_not_found_by_what_it_does_not_show(client):
    there = letter(client)
    assert client.bulk_set(ref(labels={"failed_from": "mail"}), error="no") == 0
    client.update(deleted=[ref(labels={"failed_from": "mail"})])
    assert client.ids() == [there]


def test_what_changes_many_leaves_it_as_it_is_and_makes_some(client):
    letter(client)
    client.bulk_set(ref(group="mail/failed"), labels={"a": "b", "failed_from": "secret"})
    assert Task.objects.get().labels == {"a": "b", "failed_from": "mail"}
    add("reports")
    client.bulk_set(ref(group="reports"), group="graveyard", error="boom")
    assert Task.objects.get(group="graveyard").labels == {"failed_from": "reports"}


# ---- Requests in the shape that MassTasker's README still shows: `deleted` holds plain ids


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
