"""What became of tasks, and what people did, in Django's admin: to be read, changed by nobody."""

import pytest

from tasks_app.access import audit
from tasks_app.core.actors import Actor
from tasks_app.models import Task

from .pages import BOB, add, claim, ids_in, text_of

ENDED = "/admin/tasks_app/endedtask/"
AUDIT = "/admin/tasks_app/auditentry/"


def record(actor):
    return audit.record(Actor(actor, reason="<b>why</b>"), "requeue", group="mail", selection="3 tasks", done=3)


def test_it_lists_what_became_of_tasks(viewer):
    first = add()
    second = claim()
    Task.objects.commit(owner=BOB, deletes=[second.id])
    response = viewer.get(ENDED)
    assert ids_in(response) == [second.id, first.id]
    assert "deleted - " in text_of(response)
    assert f"claimed {second.id} " in text_of(response)
    assert f"client {BOB}" in text_of(response)


@pytest.mark.parametrize("where", ["q=nonsense", "q=999", "origin=999", f"q={10**30}", f"origin={10**30}"])
def test_a_chain_that_is_not_there_is_empty(viewer, where):
    add()
    claim()
    assert ids_in(viewer.get(f"{ENDED}?{where}")) == []


def test_it_says_when_not_every_id_is_listed(viewer, settings):
    for kept, said in (
        ("finished", "Some ids are missing: history keeps only how tasks ended, and is pruned after 7 days."),
        ("off", "Some ids are missing: history is switched off."),
    ):
        settings.TASKSTORE_HISTORY = kept
        assert said in text_of(viewer.get(ENDED))
    settings.TASKSTORE_HISTORY = "full"
    assert "Some ids are missing" not in text_of(viewer.get(ENDED))


def test_it_lists_what_people_did(operator):
    entry = record("olaf")
    response = operator.get(AUDIT)
    assert ids_in(response) == [entry.id]
    assert "olaf requeue mail 3 tasks 3 0 <b>why</b>" in text_of(response)
    assert "<b>why</b>" not in response.content.decode()
