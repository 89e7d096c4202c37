"""BulkSet, with every documented outcome."""

import pytest
from grpc import StatusCode

from tasks_app.core.operations import Claim
from tasks_app.grpc_api import bulk_set
from tasks_app.models import AuditEntry, Scope, Task
from taskstore.types.tasks import NewTask

from .client import message, outcome, ref, wrong_fields
from .test_query import at
from .test_update import BOB, refused


def test_it_changes_what_the_prototype_says_and_nothing_else(client):
    data = {"type_url": "a/B", "value": b"\xff"}
    [old] = client.create("mail", labels={"colour": "red"}, error="torn", data=data, not_before=at(10_000))
    assert client.bulk_set(ref(group="mail"), group="reports", labels={"shape": "round"}) == 1
    [task] = client.debug().tasks
    assert (task.group, dict(task.labels), task.error) == ("reports", {"shape": "round"}, "torn")
    assert (task.data.type_url, task.data.value, task.not_before.seconds) == ("a/B", b"\xff", 10)
    assert client.bulk_set(ref(id=task.id), error="worse", not_before=at(20_000)) == 1
    [task] = client.debug().tasks
    assert (task.group, dict(task.labels)) == ("reports", {"shape": "round"})
    assert (task.error, task.not_before.seconds) == ("worse", 20)
    assert Task.objects.get(id=task.id).origin == old


def test_each_is_changed_once_however_many_refs_reach_it(client, monkeypatch):
    monkeypatch.setattr(bulk_set, "SIZE", 3)
    client.create(*["mail"] * 7, labels={"colour": "red"})
    named, _ = client.create("reports", "reports")
    ids = [ref(id=client.ids("mail")[0]), ref(id=named), ref(id=named)]
    refs = [ref(group="mail"), ref(labels={"colour": "red"}), *ids]
    assert client.bulk_set(*refs, ref(group="nobody's"), error="torn") == 8
    assert sorted(task.error for task in client.debug().tasks) == ["", *["torn"] * 8]
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.done) == ("token:Ann", "edit", 8)


def test_it_overrides_owners_and_a_lease_goes_on(client):
    Task.objects.commit(owner=BOB, adds=[NewTask(group="mail"), NewTask(group="later", timespec_ms=-60_000)])
    [held] = Task.objects.perform(Claim(groups=("mail",), owner=BOB))
    assert client.bulk_set(ref(group="mail"), ref(group="later"), error="torn") == 2
    task, later = (Task.objects.get(group=group) for group in ("mail", "later"))
    assert (task.leased, task.available_at_ms, task.owner) == (True, held.available_at_ms, 0)
    assert (later.leased, later.owner) == (False, 0)


@pytest.mark.parametrize("prototype", [{}, {"data": {"type_url": "a/B", "value": b"2"}}, {"id": 7}])
def test_an_empty_prototype_counts_what_matches_and_changes_nothing(client, prototype):
    named, *_ = client.create("mail", "mail", "reports", labels={"colour": "red"})
    client.create("reports")
    before = list(client.debug().tasks)
    assert client.bulk_set(ref(group="mail"), ref(id=named), ref(labels={"colour": "red"}), **prototype) == 3
    assert client.bulk_set(ref(group="nobody's"), **prototype) == 0
    assert list(client.debug().tasks) == before
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("prototype", [{}, {"error": "torn"}])
def test_a_named_task_that_is_not_there_refuses_all_of_it(client, connect, prototype):
    first, second, foreign = client.create("mail", "mail", "reports")
    client.update(deleted=[ref(id=second)])
    before = list(client.debug().tasks)
    for missing in (second, 2**64 - 1, 0):
        error = refused(client.bulk_set, ref(group="mail"), ref(id=first), ref(id=missing), **prototype)
        assert outcome(error)[0] is StatusCode.NOT_FOUND
        assert str(missing) in error.details()
    ann = connect(Scope.OPERATE, "mail")
    assert outcome(refused(ann.bulk_set, ref(id=first), ref(id=foreign), **prototype))[0] is StatusCode.NOT_FOUND
    assert list(client.debug().tasks) == before


@pytest.mark.parametrize(
    ("refs", "prototype", "field"),
    [
        ([{}], {"error": "torn"}, "ref[0]"),
        ([{"group": "mail"}], {"group": "x" * 256}, "prototype.group"),
        ([{"group": "mail"}], {"error": "a\0b"}, "prototype.error"),
        ([{"group": "mail"}], {"not_before": {"nanos": -1}}, "prototype.not_before"),
    ],
)
def test_bad_input_names_the_field(client, refs, prototype, field):
    client.create("mail")
    error = refused(client.bulk_set, *[ref(**which) for which in refs], **prototype)
    assert (outcome(error)[0], wrong_fields(error)) == (StatusCode.INVALID_ARGUMENT, [field])


def test_only_who_may_operate_may_and_in_its_groups(connect, client):
    client.create("mail", "reports", labels={"a": "1"})
    forbidden = StatusCode.PERMISSION_DENIED
    assert outcome(refused(connect(Scope.WORK).bulk_set, ref(group="mail"), error="torn"))[0] is forbidden
    ann = connect(Scope.OPERATE, "mail")
    assert outcome(refused(ann.bulk_set, ref(group="reports"), error="torn"))[0] is forbidden
    assert outcome(refused(ann.bulk_set, ref(group="mail"), group="reports"))[0] is forbidden
    assert ann.bulk_set(ref(labels={"a": "1"}), error="torn") == 1
    assert message("Task", error="torn").error == client.query("mail").error
