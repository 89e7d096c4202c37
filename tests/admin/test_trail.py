"""What became of tasks, and what people did, in Django's admin: to be read, changed by nobody."""

import pytest

from tasks_app.access import audit
from tasks_app.core.actors import Actor
from tasks_app.models import AuditEntry, EndedTask, Task

from .pages import ANN, BOB, add, claim, ids_in, text_of

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


def test_it_finds_a_chain_by_its_first_id(viewer):
    first = add()
    claim(duration_ms=0)
    second = claim()
    Task.objects.commit(owner=BOB, deletes=[second.id])
    add("reports")
    for url in (f"{ENDED}?q={first.id}", f"{ENDED}?origin={first.id}"):
        assert ids_in(viewer.get(url)) == list(range(second.id, first.id - 1, -1))


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


def test_it_shows_an_ended_task(viewer):
    task = add(error="no such recipient")
    Task.objects.commit(owner=ANN, deletes=[task.id])
    assert "no such recipient" in text_of(viewer.get(f"{ENDED}{task.id}/change/"))


def test_it_lists_what_people_did(operator):
    entry = record("olaf")
    response = operator.get(AUDIT)
    assert ids_in(response) == [entry.id]
    assert "olaf requeue mail 3 tasks 3 0 <b>why</b>" in text_of(response)
    assert "<b>why</b>" not in response.content.decode()


def test_it_finds_entries_by_who_did_it(operator):
    entry, _ = record("olaf"), record("ada")
    assert ids_in(operator.get(f"{AUDIT}?q=olaf")) == [entry.id]
    assert ids_in(operator.get(f"{AUDIT}?q=ola")) == []


def test_a_viewer_is_not_told_what_people_did(viewer):
    record("olaf")
    assert viewer.get(AUDIT).status_code == 403


@pytest.mark.parametrize("page", ["add/", "{id}/change/", "{id}/delete/"])
@pytest.mark.parametrize("model", [EndedTask, AuditEntry])
def test_nobody_changes_the_trail(administrator, model, page):
    task = add()
    Task.objects.commit(owner=ANN, deletes=[task.id])
    record("olaf")
    before = list(model.objects.values())
    url = f"/admin/tasks_app/{model._meta.model_name}/" + page.format(id=model.objects.get().pk)
    assert administrator.post(url, {"post": "yes", "reason": "forged"}).status_code == 403
    assert list(model.objects.values()) == before


@pytest.mark.parametrize("url", [ENDED, AUDIT])
def test_no_action_changes_the_trail(administrator, url):
    task = add()
    Task.objects.commit(owner=ANN, deletes=[task.id])
    entry = record("olaf")
    administrator.post(url, {"action": "purge", "_selected_action": [task.id, entry.id], "post": "yes"})
    assert (EndedTask.objects.count(), AuditEntry.objects.count()) == (1, 1)
