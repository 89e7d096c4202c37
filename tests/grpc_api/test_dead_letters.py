"""Dead letters through gRPC: made there like anywhere, and shown to nobody."""

from tasks_app.models import Task

from ..console.store import add
from .client import message, ref


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
