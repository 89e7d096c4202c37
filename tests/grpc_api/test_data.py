"""Data as protobuf's Any, byte for byte, beside the other ways in."""

import base64
from typing import Any

import pytest

from tasks_app.models import Scope
from tests.people import make_user, signed_in
from tests.rest_api.api import Api

from .client import message, theirs

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
