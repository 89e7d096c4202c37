"""The one list of a task's fields, and all that has to agree with it."""

import json
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest
from msgspec.structs import fields as members_of

from tasks_app.core import idempotency
from tasks_app.core.operations import TaskRecord, Update
from tasks_app.core.rules import World, decide
from tasks_app.database.rows import ITEM_FIELDS, KEPT_COLUMNS
from tasks_app.forms import TaskForm
from tasks_app.models import BulkItem, EndedTask
from tasks_app.models import Task as StoredTask
from taskstore.client.calls import encoded
from taskstore.client.verbs import CommitOnTheWire
from taskstore.types.requests import Add, AddOrMove
from taskstore.types.requests import Update as AskedUpdate
from taskstore.types.tasks import CONTENT, FIELDS, NAMED, PLAIN, Change, Kept, NewTask, Task, answer_of
from tests.behaviour.ways import Seen

pytestmark = pytest.mark.once

ANN, BOB = 7, 8
# A value for each type of a column, which is no field's default.
VALUES: dict[str, Any] = {
    "bigint": 11,
    "integer": 12,
    "smallint": 13,
    "text": "letter",
    "bytea": b"letter",
    "jsonb": {"to": "Bob"},
}
RECORD = TaskRecord(**{field.name: VALUES[field.column] for field in FIELDS})._replace(payload=0)
WRITTEN: dict[str, Any] = {field.name: VALUES[field.column] for field in FIELDS if field.kept is Kept.CONTENT}


def columns_of(model):
    return {field.column for field in model._meta.concrete_fields}


def content_of(task):
    return {name: getattr(task, name) for name in CONTENT}


def drafts_of(operation, *tasks, **found):
    effect: Any
    [effect] = decide([operation], World(1_000, {task.id: task for task in tasks}, **found))
    return effect.drafts


# ---- What the store keeps


def test_a_record_and_its_row_have_the_fields_of_the_list():
    assert set(TaskRecord._fields) == columns_of(StoredTask) == {field.name for field in FIELDS}


def test_the_trail_and_the_undo_keep_what_the_list_says():
    assert set(KEPT_COLUMNS) <= columns_of(EndedTask)
    assert set(KEPT_COLUMNS) == columns_of(EndedTask) & set(TaskRecord._fields)
    assert set(ITEM_FIELDS) <= columns_of(BulkItem)
    assert set(CONTENT) <= set(ITEM_FIELDS)


def test_an_answer_that_an_older_version_kept_can_still_be_read():
    """It has fewer fields: those that were added since have defaults."""
    known = [field for field in TaskRecord._fields if field not in TaskRecord._field_defaults]
    draft = RECORD._replace(id=0, origin=0)
    kept = json.loads(idempotency.text_of([draft]))
    kept["drafts"] = [values[: len(known)] for values in kept["drafts"]]
    answer: Any = idempotency.answer_in(json.dumps(kept), [5])
    assert answer[0] == draft._replace(id=5, origin=5, **TaskRecord._field_defaults)


# ---- What becomes of them in a successor


def test_a_successor_through_masstasker_keeps_what_its_messages_cannot_say():
    add = NewTask(id=11, group="letter", data=b"other")
    [draft] = drafts_of(Update(adds=(add,), deletes=(11,)), RECORD)
    assert [getattr(draft, name) for name in PLAIN] == [getattr(RECORD, name) for name in PLAIN]


def test_a_copy_leaves_no_field_out():
    copy = NewTask.successor_of(RECORD)
    assert content_of(copy) == WRITTEN
    assert copy == NewTask(id=RECORD.id, **WRITTEN)
    assert NewTask.successor_of(RECORD, id=0, error="") == replace(copy, id=0, error="")


# ---- What crosses the wire


def test_adds_and_changes_name_the_content():
    assert {field.name for field in fields(NewTask)} >= set(CONTENT)
    assert {field.name for field in fields(Change)} >= set(CONTENT)


def test_an_answer_has_every_field_that_has_a_name_in_json():
    told = [field for field in FIELDS if field.wire]
    others = {"data_base64", "progress", "unique_group", "duplicate", "ending"}  # Not stored with the task.
    assert {member.encode_name for member in members_of(Task)} == {field.wire for field in told} | others
    answer = answer_of(RECORD)
    assert {field.name: getattr(answer, field.name) for field in told} == {
        field.name: getattr(RECORD, field.name) for field in told
    }
    assert {field.name for field in told} == {field.name for field in fields(Seen)} - {"duplicate", "ending"}


@pytest.mark.parametrize("asked", [Add, AddOrMove, AskedUpdate])
def test_a_request_can_say_every_field_of_the_content(asked):
    names = {member.name for member in members_of(asked)}
    assert names >= set(CONTENT)
    given = {name: WRITTEN[name] for name in NAMED}
    assert asked(**given, **({"id": 11} if asked is AskedUpdate else {})).named == given


def test_the_client_sends_what_a_task_says():
    asked: Any = partial(CommitOnTheWire, ANN)
    wanted = {**WRITTEN, "data": "letter"}
    assert json.loads(encoded(asked(adds=[NewTask(**WRITTEN)]).asked))["adds"] == [wanted]
    moved = {"id": 11, "keep": True, **wanted}
    assert json.loads(encoded(asked(updates=[Change(id=11, **WRITTEN)]).asked))["adds"] == [moved]


def test_people_can_edit_the_content():
    inputs = set(TaskForm.base_fields)
    assert inputs >= set(CONTENT) - {"data"} | {"content"}
    assert TaskForm.base_fields["priority"].widget.attrs == {"min": -100, "max": 100}
