"""The preview of a purge names the batches that it closes."""

import pytest

from tasks_app.bulk import Purge, Requeue, Selection, selection
from tasks_app.core.operations import GroupScope, Step
from tasks_app.models import Task
from taskstore.types.tasks import Change, NewTask

pytestmark = pytest.mark.django_db


def made(*groups, **more):
    batch, tasks = Task.objects.create_batch(owner=1, adds=[NewTask(group=group) for group in groups], **more)
    return batch.id, [task.id for task in tasks]


def closed_by(action=None, **selected):
    return selection.preview(Selection(**selected), action or Purge()).closes


def test_it_names_those_that_wait_for_nothing_else():
    whole, _ = made("mail", "mail")
    made("mail", "reports")
    made("mail", hold=True)
    outer, _ = made("mail")
    inner, _ = made("mail", parent=outer)
    assert closed_by(group="mail") == [whole, inner]
    assert closed_by(group="reports") == []
    assert closed_by(Requeue(), group="mail") == ()


def test_dead_letters_count_unless_they_count_as_ended():
    strict, [dead, _] = made("mail", "mail")
    lax, [other, _] = made("mail", "mail", failed_ends=True)
    Task.objects.commit(owner=1, updates=[Change(id=each, group="dead", error="no") for each in (dead, other)])
    assert closed_by(group="mail") == [lax]
    assert closed_by(q="group:*") == [strict, lax]
    assert closed_by(q="group:*", scope=GroupScope(("dead",))) == []


def test_what_has_gone_is_waited_for_no_more_and_a_list_counts_as_its_commands():
    batch, [gone, _] = made("mail", "mail")
    Task.objects.cancel([gone])
    listed, _ = made(hold=True)
    labels = {"commands": "3"}
    Task.objects.commit(owner=1, adds=[NewTask(group="commands/p/open", labels=labels, batch=listed)])
    Task.objects.change_batch(listed, Step.RELEASE)
    assert closed_by(group="mail") == [batch]
    assert closed_by(group="commands/p/open") == [listed]


def test_the_console_links_to_them(operator):
    batch, _ = made("mail")
    page = operator.get("/console/confirm?verb=purge&name=mail&all=1").content.decode()
    assert f'<a href="/console/batches/{batch}">batch {batch}</a>' in page
