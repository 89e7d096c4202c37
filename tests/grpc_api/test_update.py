"""Update, with every documented outcome."""

import grpc
import pytest
from grpc import StatusCode

from tasks_app.core.operations import Claim
from tasks_app.models import AuditEntry, EndedTask, Scope, Task
from tasks_app.reading.history import chain_of
from taskstore.types.tasks import NewTask
from tests.people import make_user, signed_in

from .client import message, outcome, reason, ref, wrong_fields

BOB = 8


@pytest.fixture
def db_client(transactional_db):
    return signed_in(make_user("ada", "admin", "see payloads"))


def refused(call, *arguments, **asked):
    with pytest.raises(grpc.RpcError) as error:
        call(*arguments, **asked)
    return error.value


def test_it_may_do_nothing_and_may_only_ask_for_predicates(client):
    assert client.update() == []
    [config] = client.create("config")
    assert client.update(predicates=[config]) == []


def test_a_group_may_have_no_name(client):
    [unnamed] = client.create("")
    assert client.query("", own_for_s=60).id > unnamed
    assert client.update(deleted=[ref(group="")]) == []
    assert client.ids() == []


@pytest.mark.parametrize("gone", [0, 2**53, 2**63, 2**64 - 1])
def test_a_predicate_that_is_missing_is_a_failed_precondition(client, gone):
    [mail] = client.create("mail")
    error = refused(client.update, deleted=[mail, 2**40], predicates=[gone])
    code, text = outcome(error)
    assert (code, reason(error)) == (StatusCode.FAILED_PRECONDITION, "refused")
    assert str(gone) in text
    assert client.ids() == [mail]


@pytest.mark.parametrize("gone", [0, 2**53, 2**63, 2**64 - 1])
def test_a_deleted_task_that_is_missing_is_not_found(client, gone):
    [mail] = client.create("mail")
    code, text = outcome(refused(client.update, deleted=[mail, gone], predicates=[mail]))
    assert code is StatusCode.NOT_FOUND
    assert str(gone) in text
    assert client.ids() == [mail]


def test_what_is_deleted_may_be_a_predicate_too(client):
    [mail] = client.create("mail")
    client.update(deleted=[mail], predicates=[mail])
    assert outcome(refused(client.update, deleted=[mail], predicates=[mail]))[0] is StatusCode.FAILED_PRECONDITION


def test_the_same_id_twice_makes_no_sense(client):
    [mail] = client.create("mail")
    error = refused(client.update, deleted=[mail, mail])
    assert (outcome(error)[0], wrong_fields(error)) == (StatusCode.INVALID_ARGUMENT, ["deleted[1].id"])
    assert client.ids() == [mail]


def test_what_another_client_holds_is_refused(client):
    Task.objects.commit(owner=BOB, adds=[NewTask(group="mail")])
    [held] = Task.objects.perform(Claim(groups=("mail",), owner=BOB))
    code, text = outcome(refused(client.update, deleted=[held.id]))
    assert code is StatusCode.FAILED_PRECONDITION
    assert str(held.id) in text
    assert client.ids() == [held.id]


def test_a_created_task_with_the_id_of_a_deleted_one_is_its_successor(client):
    [old] = client.create("mail")
    [new] = client.update(created=[message("Task", id=old, group="reports", error="torn")], deleted=[old])
    chain = chain_of(new)
    assert chain
    assert (chain.origin, [str(step.ending) for step in chain.ended]) == (old, ["moved"])


def test_a_successor_in_the_future_goes_on_with_the_lease_and_the_priority(client):
    Task.objects.commit(owner=BOB, adds=[NewTask(group="mail", priority=5, data=b"1")])
    held = client.query("mail", own_for_s=60)
    renewed = message("Task")
    renewed.CopyFrom(held)
    renewed.not_before.seconds += 60
    [successor] = client.update(created=[renewed], deleted=[held.id])
    task = Task.objects.get(id=successor)
    assert (task.priority, task.leased, task.data) == (5, True, b"1")
    assert EndedTask.objects.get(id=held.id).ending == "renewed"


@pytest.mark.parametrize("seconds", [-62_135_596_800, -1, 253_402_300_799])
def test_a_time_comes_back_as_it_was_sent(client, seconds, db_client):
    """Clients in Go send the year 1 for no time."""
    sent = message("Task", group="mail", not_before={"seconds": seconds})
    [task] = client.update(created=[sent])
    assert client.debug("mail").tasks[0].not_before.seconds == seconds
    read = client.debug("mail").tasks[0]
    [again] = client.update(created=[read], deleted=[task])
    assert client.debug("mail").tasks[0].not_before.seconds == seconds
    if seconds < 0:
        assert client.query("mail", own_for_s=60).id > again
        assert Task.objects.now_ms() - 60_000 < Task.objects.get().leased_since_ms
    assert db_client.get(f"/console/task/{task}").status_code == 200
    assert db_client.get("/console/group?name=mail").status_code == 200


def test_groups_and_labels_stand_for_all_that_they_match_each_once(client):
    red, blue = ({"colour": each} for each in ("red", "blue"))
    [kept] = client.create("reports", labels={"colour": "green"})
    client.create("mail", "mail", labels=red)
    client.create("reports", labels=blue)
    named, *_ = client.create("mail", "mail")
    either = ref(labels={"colour": "red", "shape": "blue"})
    refs = [named, ref(group="mail"), ref(group="mail"), either, ref(labels=blue)]
    [new] = client.update(created=[message("Task", group="done")], deleted=refs)
    assert client.ids() == [kept, new]
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.done) == ("token:Ann", "purge", 5)


@pytest.mark.parametrize("which", [{"group": "nobody's"}, {"labels": {}}, {"labels": {"colour": "red"}}])
def test_what_matches_nothing_is_no_error(client, which):
    [mail] = client.create("mail")
    assert client.update(deleted=[ref(**which)]) == []
    assert client.ids() == [mail]
    assert not AuditEntry.objects.exists()


def test_references_override_owners_and_ids_do_not(client):
    Task.objects.commit(owner=BOB, adds=[NewTask(group="mail"), NewTask(group="reports")])
    for group in ("mail", "reports"):
        Task.objects.perform(Claim(groups=(group,), owner=BOB))
    mail, reports = (client.ids(group)[0] for group in ("mail", "reports"))
    assert outcome(refused(client.update, deleted=[mail, ref(group="reports")]))[0] is StatusCode.FAILED_PRECONDITION
    assert client.ids() == sorted([mail, reports])
    client.update(deleted=[ref(group="mail"), ref(group="reports")])
    assert client.ids() == []


def test_a_reference_with_nothing_set_makes_no_sense(client):
    error = refused(client.update, deleted=[ref(group="mail"), ref()])
    assert (outcome(error)[0], wrong_fields(error)) == (StatusCode.INVALID_ARGUMENT, ["deleted[1]"])


def test_too_many_that_match_are_refused(client, monkeypatch):
    monkeypatch.setattr("tasks_app.grpc_api.servicer.MOST_MATCHED", 2)
    client.create("mail", "mail", "mail")
    assert outcome(refused(client.update, deleted=[ref(group="mail")]))[0] is StatusCode.RESOURCE_EXHAUSTED
    assert len(client.ids("mail")) == 3


def timestamp(**values):
    return message("Task", group="mail", not_before=values)


@pytest.mark.parametrize(
    ("task", "fields"),
    [
        ({"group": "x" * 256}, ["created[0].group"]),
        ({"group": "a\0b"}, ["created[0].group"]),
        ({"error": "a\0b"}, ["created[0].error"]),
        ({"labels": {"a\0b": ""}}, ["created[0].labels"]),
        ({"labels": {"a": "x" * 256}}, ["created[0].labels.a"]),
        ({"labels": {str(number): "" for number in range(65)}}, ["created[0].labels"]),
        ({"data": {"type_url": "x" * 1_001}}, ["created[0].data.type_url"]),
        ({"data": {"value": b"x" * 11}}, ["created[0].data.value"]),
        ({"not_before": {"seconds": 253_402_300_800}}, ["created[0].not_before"]),
        ({"not_before": {"seconds": -62_135_596_801}}, ["created[0].not_before"]),
        ({"not_before": {"nanos": -1}}, ["created[0].not_before"]),
        ({"not_before": {"nanos": 1_000_000_000}}, ["created[0].not_before"]),
    ],
)
def test_bad_input_names_the_field(client, settings, task, fields):
    settings.TASKSTORE_MAX_DATA_BYTES = 10
    error = refused(client.update, created=[message("Task", **{"group": "mail", **task})])
    assert (outcome(error)[0], wrong_fields(error)) == (StatusCode.INVALID_ARGUMENT, fields)
    assert client.ids() == []


@pytest.mark.parametrize("path", ["group", "labels"])
def test_a_reference_holds_what_a_task_can_have(client, path):
    which = {"group": "a\0b"} if path == "group" else {"labels": {"a\0b": ""}}
    error = refused(client.update, deleted=[ref(**which)])
    assert outcome(error)[0] is StatusCode.INVALID_ARGUMENT
    assert wrong_fields(error)[0].startswith("deleted[0]")


def test_a_worker_may_not_refer_to_groups_and_labels(connect):
    worker = connect(Scope.WORK)
    [mail] = worker.create("mail", labels={"colour": "red"})
    for each in (ref(group="mail"), ref(labels={"colour": "red"})):
        assert outcome(refused(worker.update, deleted=[each]))[0] is StatusCode.PERMISSION_DENIED
    assert worker.ids() == [mail]


def test_a_token_stays_in_its_groups(connect, client):
    _, reports = client.create("mail", "reports", labels={"a": "1"})
    ann = connect(Scope.OPERATE, "mail")
    assert outcome(refused(ann.create, "reports"))[0] is StatusCode.PERMISSION_DENIED
    assert outcome(refused(ann.update, deleted=[ref(group="reports")]))[0] is StatusCode.PERMISSION_DENIED
    assert outcome(refused(ann.update, deleted=[reports]))[0] is StatusCode.NOT_FOUND
    assert outcome(refused(ann.update, predicates=[reports]))[0] is StatusCode.FAILED_PRECONDITION
    ann.update(deleted=[ref(labels={"a": "1"})])
    assert client.ids() == [reports]
