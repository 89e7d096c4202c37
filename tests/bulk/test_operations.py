"""Bulk operations: what they change, what they leave alone, and what an undo brings back."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks_app import bulk
from tasks_app.bulk import Asked, Edit, Move, Purge, Requeue, Selection, running
from tasks_app.core.actors import Actor
from tasks_app.models import AuditEntry, BulkItem, BulkOperation, Task
from taskstore.errors import InvalidInput
from taskstore.types.tasks import FIELDS, Kept, NewTask, State
from tests.console.store import add, change_all, claim, fail, ids, one_of_each_state

pytestmark = pytest.mark.django_db

MAIL = Selection(group="mail")


def begin(verb, selection=MAIL, **asked):
    return change_all(verb, selection, **asked)


def tasks_of(group="mail"):
    return sorted(Task.objects.get_queryset().in_group(group), key=lambda task: task.origin)


def content(task, *but):
    """All that an undo restores."""
    names = {field.name for field in FIELDS if field.kept is not Kept.NOTHING}
    return {name: getattr(task, name) for name in names - set(but)} | {"data": bytes(task.data)}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 60)  # However busy the machine is.
    monkeypatch.setattr(bulk.running, "MOST", 2)


@pytest.mark.parametrize(
    "selection",
    [
        Selection(group="mail", state=State.RETRYING),
        Selection(q="group:mail error:boom"),
        Selection(q="error:boom data.user:7"),
    ],
)
def test_it_requeues_what_meets_the_filter_and_nothing_else(selection):
    failed = [fail(task, "boom") for task in add(count=5, data=b'{"user": 7}')]
    others = [*add(count=2), fail(add("other")[0], "crash")]
    operation = begin(Requeue, selection)
    assert (operation.state, operation.done, operation.skipped, operation.gone) == ("done", 5, 0, 0)
    assert not Task.objects.filter(error="boom").exists()
    assert {task.origin for task in tasks_of()} >= {task.origin for task in failed}
    assert all(Task.objects.find([task.id])[0] for task in others)


def test_what_arrives_after_the_preview_is_not_touched():
    add(count=3)
    seen = bulk.preview(MAIL)
    later = add(count=50)
    bulk.start(Asked(action=Purge(), selection=seen.selection, expected=3, typed="mail"), Actor("olaf"))
    assert [task.id for task in tasks_of()] == [task.id for task in later]


@pytest.mark.parametrize("changed", [20, -20])
def test_a_number_that_has_drifted_is_refused_and_told(changed):
    failed = [fail(task) for task in add(count=30)]
    quiet = add(count=30)
    seen = bulk.preview(Selection(group="mail", state=State.RETRYING))
    if changed > 0:
        for task in quiet[:changed]:
            fail(task)
    else:
        Task.objects.commit(owner=0, deletes=[task.id for task in failed[:-changed]])
    before = {task.id for task in tasks_of()}
    with pytest.raises(InvalidInput) as refused:
        bulk.start(Asked(action=Requeue(), selection=seen.selection, expected=30), Actor("olaf"))
    assert refused.value.fields["expected"] == [
        f"the selection changed from 30 to {30 + changed} tasks. Review and confirm"
    ]
    assert {task.id for task in tasks_of()} == before
    assert not BulkOperation.objects.exists()


def test_tasks_of_live_workers_are_skipped_and_counted():
    one_of_each_state()
    operation = begin(Purge, typed="mail")
    assert (operation.done, operation.skipped) == (5, 1)
    assert bulk.reasons(operation.pk) == {"claimed by a worker": 1}
    [left] = tasks_of()
    assert left.leased


def test_they_are_taken_when_that_is_asked_for():
    add()
    [held] = claim()
    operation = begin(Requeue, takes_claimed=True)
    [task] = tasks_of()
    assert operation.done == 1
    assert (task.owner, task.leased, task.origin) == (0, False, held.origin)


def test_a_purge_of_a_whole_group_needs_its_name_and_of_many_the_number(monkeypatch):
    monkeypatch.setattr(bulk.starting, "NEEDS_TYPED_NAME_ABOVE", 2)
    add(count=2)
    add("other", count=2)
    for selection, typed in ((MAIL, "mail"), (Selection(q="-state:failed"), "4")):
        with pytest.raises(InvalidInput) as refused:
            begin(Purge, selection, typed="x")
        assert typed in refused.value.fields["typed"][0]
    assert begin(Purge, Selection(q="-state:failed"), typed="4").done == 4


@pytest.mark.parametrize("selection", [Selection(group="odd*"), Selection(q="group:odd*")])
def test_also_a_group_whose_name_ends_like_a_pattern_is_purged_whole(selection):
    add("odd*", count=2)
    with pytest.raises(InvalidInput):
        begin(Purge, selection)
    assert begin(Purge, selection, typed="odd*").done == 2


def test_it_moves_into_a_group_that_is_there_or_may_be_created():
    add(count=3)
    for to, words in (
        ("mail", "other than"),
        ("new", "existing group, and new does not exist"),
        ("", "must not be empty"),
    ):
        with pytest.raises(InvalidInput) as refused:
            begin(Move, to=to)
        assert words in refused.value.fields["to"][0]
    assert begin(Move, to="new", create=True).done == 3
    assert len(tasks_of("new")) == 3


@pytest.mark.parametrize(
    ("verb", "parameters"),
    [(Requeue, {}), (Move, {"to": "new", "create": True}), (Edit, {"error": "other", "priority": 3}), (Purge, {})],
)
def test_an_undo_brings_back_what_there_was(verb, parameters):
    added = Task.objects.commit(
        owner=0,
        adds=[
            NewTask(group="mail", data=b"\0\xff" * 3, data_type="a/b", labels={"a": "b"}, priority=5, error="boom"),
            NewTask(group="mail", data=b"x" * 100_000, timespec_ms=-3_600_000),
            NewTask(group="mail"),
        ],
    )
    before = [content(task) | {"at": task.available_at_ms} for task in added]
    operation = begin(verb, typed="mail", **parameters)
    assert operation.done + operation.skipped == 3
    undone = bulk.undo(operation, Actor("olaf", reason="a mistake"))
    assert (undone.state, undone.done, undone.skipped) == ("done", operation.done, 0)
    assert [content(task) | {"at": task.available_at_ms} for task in tasks_of()] == before
    assert list(AuditEntry.objects.order_by("pk").values_list("action", flat=True)) == [verb.words.name, "undo"]
    with pytest.raises(InvalidInput, match="already undone"):
        bulk.undo(operation, Actor("olaf"))


def test_an_undo_leaves_alone_what_has_changed_since():
    add(count=4)
    operation = begin(Edit, error="other")
    first, second, *_ = tasks_of()
    fail(first, "since")
    Task.objects.commit(owner=0, deletes=[second.id])
    undone = bulk.undo(operation, Actor("olaf"))
    assert (undone.done, undone.skipped) == (2, 2)
    assert bulk.reasons(undone.pk) == {"changed since": 1, "ended since": 1}
    assert sorted(task.error for task in tasks_of()) == ["", "", "since"]


def test_an_undo_reads_the_data_of_a_chunk_at_once_as_far_as_there_is_memory_for_it(monkeypatch):
    monkeypatch.setattr(bulk.running, "MOST", 200)
    monkeypatch.setattr(bulk.running, "MOST_BYTES", 100)
    add(count=20, data=b"x" * 10)
    add(data=b"x" * 1_000)
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 0)
    operation = begin(Purge, typed="mail")
    bulk.run(operation.pk)
    undone = bulk.undo(BulkOperation.objects.get(), Actor("olaf"))
    assert undone.done == 10
    with CaptureQueriesContext(connection) as captured:
        bulk.run(undone.pk)
    undone.refresh_from_db()
    assert (undone.state, undone.done) == ("done", 21)
    assert len([query for query in captured if '"data" FROM "tasks_app_bulkitem"' in query["sql"]]) <= 3


@pytest.mark.parametrize("verb", [Requeue, Purge])
def test_a_process_that_dies_between_a_commit_and_its_numbers_costs_nothing(monkeypatch, verb):
    for task in add(count=7):
        fail(task, "boom")
    with monkeypatch.context() as dying:
        dying.setattr(running, "_save_progress", _die)
        with pytest.raises(ZeroDivisionError):
            begin(verb, typed="mail")
    operation = BulkOperation.objects.get()
    assert operation.state == "running"
    bulk.run(operation.pk)
    operation.refresh_from_db()
    assert (operation.state, operation.done, operation.gone) == ("done", 7, 0)
    with monkeypatch.context() as dying:
        dying.setattr(running, "_save_progress", _die)
        with pytest.raises(ZeroDivisionError):
            bulk.undo(operation, Actor("olaf"))
    undo = BulkOperation.objects.get(verb="undo")
    bulk.run(undo.pk)
    undo.refresh_from_db()
    assert (undo.state, undo.done, undo.skipped) == ("done", 7, 0)
    assert [task.error for task in tasks_of()] == ["boom"] * 7
    assert AuditEntry.objects.count() == 2


def test_what_a_process_did_that_was_taken_for_dead_is_counted(monkeypatch):
    add(count=5)
    commit_all = bulk.running._commit_all
    late: list[object] = []

    def committed_already(portion, operation):
        if not late:
            late.append(commit_all(portion, operation))
        return commit_all(portion, operation)

    monkeypatch.setattr(bulk.running, "_commit_all", committed_already)
    operation = begin(Purge, typed="mail")
    assert (operation.state, operation.done, operation.gone) == ("done", 5, 0)


def _die(*_):
    raise ZeroDivisionError


def test_it_is_cancelled_between_chunks_and_can_be_undone(monkeypatch):
    add(count=10)
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 0)
    operation = begin(Purge, typed="mail")
    assert (operation.state, operation.done) == ("running", 2)
    cancelled = bulk.cancel(operation, Actor("ada"))
    assert (cancelled.state, cancelled.done, cancelled.cancelled_by) == ("cancelled", 2, "ada")
    assert len(tasks_of()) == 8
    monkeypatch.undo()
    assert bulk.undo(cancelled, Actor("olaf")).done == 2
    assert len(tasks_of()) == 10


def test_two_processes_do_not_run_it_at_once(monkeypatch):
    add(count=4)
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 0)
    operation = begin(Purge, typed="mail")
    hold = running.Hold(operation.pk)
    assert hold.take()
    bulk.run(operation.pk)
    assert BulkItem.objects.count() == 2
    hold.release()
    bulk.run(operation.pk)
    assert BulkItem.objects.count() == 4


def test_a_task_that_can_not_be_changed_fails_alone(monkeypatch):
    bad = add(count=5)[2]
    perform = type(Task.objects).perform

    def refusing(manager, operation):
        if bad.id in operation.changed_ids:
            raise ValueError("of no use")
        return perform(manager, operation)

    monkeypatch.setattr(type(Task.objects), "perform", refusing)
    operation = begin(Purge, typed="mail")
    assert (operation.state, operation.done, operation.failed) == ("done", 4, 1)
    [item] = BulkItem.objects.filter(outcome="failed")
    assert (item.task, item.why) == (bad.id, "ValueError: of no use")
    assert [task.id for task in tasks_of()] == [bad.id]


def test_selected_tasks_are_changed_and_those_that_are_gone_are_counted():
    tasks = add(count=5)
    Task.objects.commit(owner=0, deletes=[tasks[0].id])
    ids = tuple(task.id for task in tasks)
    seen = bulk.preview(Selection(group="mail", ids=ids))
    assert seen.count == 4
    operation = begin(Purge, Selection(group="mail", ids=ids))
    assert (operation.done, operation.in_words) == (4, "5 selected tasks")


def test_it_gives_back_what_workers_hold_as_it_is_and_nothing_else():
    tasks = one_of_each_state()
    tried = fail(add(labels={"a": "b"}, priority=3)[0], "tried once")
    held = claim(count=9, owner=7)
    operation = begin(bulk.GiveBack)
    leased = 1 + len(held)  # All that was available.
    assert (operation.state, operation.done) == ("done", leased)
    assert bulk.reasons(operation.pk, operation.gone) == {"not leased": 1}
    assert not Task.objects.filter(leased_since_ms__gt=0).exists()
    back = Task.objects.get(origin=tried.origin)
    assert (back.error, back.labels, back.priority, back.owner) == ("tried once", {"a": "b"}, 3, 0)
    assert tasks["scheduled"].id in ids()
    with pytest.raises(InvalidInput, match="a lease that has ended can't be given again"):
        bulk.undo(operation, Actor("olaf"))
    assert AuditEntry.objects.get(action="give back").done == leased
