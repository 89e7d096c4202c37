"""Requeue, move and purge: the question, the deed, the audit log."""

import re

import pytest

from tasks_app import bulk
from tasks_app.models import AuditEntry, BulkOperation, EndedTask, Task
from taskstore.types.tasks import State

from .store import add, claim, claimed_task, fail, one_of_each_state

pytestmark = pytest.mark.django_db


def ask(client, verb, **query):
    """The question, and what its form would send."""
    answer = client.get("/console/confirm", {"verb": verb, "name": "mail", **query})
    assert answer.status_code == 200
    return answer.content.decode(), form_of(answer.content.decode())


def form_of(html):
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(
        r'<input type="hidden" name="(\w+)" value="([^"]*)">', html.split('class="confirm"')[1]
    ):
        fields.setdefault(name, []).append(value)
    return fields


def text(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html))


def agree(client, verb, form, **typed):
    return client.post(f"/console/{verb}", {**form, **typed})


def said(client, answer):
    """What the page after the deed says."""
    return text(client.get(answer.headers["Location"]).content.decode())


def alive(group="mail"):
    return sorted(Task.objects.get_queryset().in_group(group).values_list("id", flat=True))


def test_it_asks_with_verb_number_group_states_and_samples(operator):
    tasks = one_of_each_state()
    html, form = ask(operator, "purge", all=1)
    question = text(html)
    assert "Purge 5 tasks from mail?" in question
    for words in ("All tasks as of", "tasks added later are not affected", "You can undo this for seven days."):
        assert words in question
    for words in (
        "ready2",
        "claimed1: skipped unless included below",
        "expired1",
        "scheduled1",
    ):
        assert words in question
    shown = html.split("<dt>examples")[1].split("</ul>")[0]
    found = {int(text(each).split()[0].replace("no", "")) for each in shown.split("</li>")[:-1]}
    assert len(found & {task.id for task in tasks.values()}) == bulk.SAMPLES
    assert "Purge 4 tasks" in question
    assert form["expected"] == ["5"]


def test_it_asks_as_a_page_without_scripts_and_as_a_part_with_them(operator):
    add()
    query = {"verb": "purge", "name": "mail", "all": 1}
    page = operator.get("/console/confirm", query).content.decode()
    part = operator.get("/console/confirm", query, headers={"HX-Request-Type": "partial"}).content.decode()
    assert "<title>Purge" in page
    assert "<html" not in part
    assert 'id="dialog-title"' in part


def test_it_changes_nothing_by_asking(operator):
    tasks = add(count=3)
    for verb in ("requeue", "move", "purge"):
        ask(operator, verb, all=1)
    assert alive() == [task.id for task in tasks]
    assert not AuditEntry.objects.exists()


def test_it_purges_the_selected_tasks(operator):
    first, second, third = add(count=3)
    _, form = ask(operator, "purge", id=[first.id, third.id])
    answer = agree(operator, "purge", form, reason="sent by hand")
    assert answer.headers["Location"] == "/console/group?name=mail"
    assert alive() == [second.id]
    assert "Purged 2 tasks in mail." in said(operator, answer)


def test_the_list_of_operations_shows_the_number_by_which_one_is_undone(operator):
    [task] = add(count=1)
    _, form = ask(operator, "purge", id=[task.id])
    agree(operator, "purge", form)
    operation = BulkOperation.objects.get()
    assert f"#{operation.pk}" in text(operator.get("/console/operations").content.decode())


def test_it_writes_down_who_did_what_and_why(operator):
    tasks = add(count=3)
    _, form = ask(operator, "purge", id=[task.id for task in tasks])
    agree(operator, "purge", form, reason=" sent by hand ")
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.group, entry.done, entry.skipped) == ("olaf", "purge", "mail", 3, 0)
    assert (entry.selection, entry.reason) == ("3 selected tasks", "sent by hand")
    assert set(EndedTask.objects.values_list("operator", "reason")) == {("olaf", "sent by hand")}


def test_it_requeues_failed_and_expired_tasks(operator):
    tasks = one_of_each_state()
    html, form = ask(operator, "requeue", all=1)
    assert "1 of them already ready: skipped" in text(html)
    assert "Requeue 3 tasks" in text(html)
    answer = agree(operator, "requeue", form)
    said_then = said(operator, answer)
    assert "Requeued 3 tasks in mail." in said_then
    assert "Skipped:" in said_then
    now_ms = Task.objects.now_ms()
    states = [task.state(now_ms) for task in Task.objects.get_queryset().in_group("mail")]
    assert sorted(states) == [State.CLAIMED, *[State.READY] * 4]
    assert not Task.objects.get_queryset().failed().exists()
    assert tasks["ready"].id in alive()


def test_it_moves_tasks_to_a_group_that_is_there(operator):
    add("reports")
    [task] = add(data=b"kept", labels={"a": "b"}, priority=3)
    _, form = ask(operator, "move", id=task.id, task=task.id)
    answer = agree(operator, "move", form, to="reports")
    assert answer.headers["Location"] == f"/console/task/{task.id}"
    assert alive() == []
    [moved] = Task.objects.filter(origin=task.id)
    assert (moved.group, bytes(moved.data), moved.labels, moved.priority) == ("reports", b"kept", {"a": "b"}, 3)


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("", "not be empty"),
        ("mail", "a group other than"),
        ("nowhere", "existing group, and nowhere does not exist"),
        ("x" * 256, "t most 255"),
    ],
)
def test_it_names_what_is_wrong_with_the_group_to_move_to(operator, to, error):
    tasks = add(count=2)
    _, form = ask(operator, "move", all=1)
    answer = agree(operator, "move", form, to=to, reason="kept while asked again")
    assert answer.status_code == 422
    html = answer.content.decode()
    assert re.search(rf'id="to-error">[^<]*{error}', html)
    assert 'value="kept while asked again"' in html
    assert alive() == [task.id for task in tasks]
    assert not AuditEntry.objects.exists()


def test_it_makes_a_new_group_when_that_is_ticked(operator):
    add(count=2)
    _, form = ask(operator, "move", all=1)
    agree(operator, "move", form, to="archive", create="1")
    assert len(alive("archive")) == 2


@pytest.mark.parametrize("typed", ["", "Mail", " mail"])
def test_it_purges_no_group_without_its_typed_name(operator, typed):
    tasks = add(count=3)
    html, form = ask(operator, "purge", all=1)
    assert "Type mail to confirm" in text(html)
    answer = agree(operator, "purge", form, typed=typed)
    assert answer.status_code == 422
    assert 'id="typed-error"' in answer.content.decode()
    assert alive() == [task.id for task in tasks]


def test_it_purges_a_group_with_its_typed_name(operator):
    add(count=3)
    _, form = ask(operator, "purge", all=1)
    agree(operator, "purge", form, typed="mail")
    assert alive() == []


def test_it_wants_the_name_for_more_than_a_thousand_tasks_of_one_state(operator):
    add(count=1_001)
    html, form = ask(operator, "purge", all=1, state="ready")
    assert 'name="typed"' in html
    assert agree(operator, "purge", form).status_code == 422
    assert len(alive()) == 1_001


def test_it_wants_no_name_for_some_tasks_of_one_state(operator):
    add(count=3)
    html, form = ask(operator, "purge", all=1, state="ready")
    assert 'name="typed"' not in html
    answer = agree(operator, "purge", form)
    assert answer.headers["Location"] == "/console/group?name=mail&state=ready"
    assert alive() == []


def test_it_does_not_touch_what_arrived_after_the_question(operator):
    add(count=3)
    _, form = ask(operator, "purge", all=1)
    late = [task.id for task in add(count=500)]
    answer = agree(operator, "purge", form, typed="mail")
    assert "Purged 3 tasks" in said(operator, answer)
    assert alive() == late


def test_it_asks_again_when_much_more_would_be_changed(operator):
    tasks = claim_all(add(count=30))
    _, form = ask(operator, "requeue", all=1, state="failed")
    for task in tasks[:20]:
        fail(task)
    answer = agree(operator, "requeue", form)
    assert answer.status_code == 422
    html = answer.content.decode()
    assert "The selection changed from 0 to 20 tasks. Review and confirm." in html
    assert form_of(html)["expected"] == ["20"]
    assert Task.objects.get_queryset().failed().count() == 20
    assert not AuditEntry.objects.exists()


def claim_all(tasks):
    return claim(count=len(tasks))


def test_it_leaves_tasks_of_live_workers_alone_and_counts_them(operator):
    held = claimed_task("mail")
    [free] = add()
    html, form = ask(operator, "purge", id=[held.id, free.id])
    assert "Purge 1 task" in text(html)
    answer = agree(operator, "purge", form)
    assert "Purged 1 task in mail. Skipped: 1 claimed by a worker." in said(operator, answer)
    assert alive() == [held.id]


def test_it_leaves_tasks_alone_that_a_worker_took_after_the_question(operator):
    add(count=2)
    _, form = ask(operator, "purge", id=alive())
    [taken] = claim()
    answer = agree(operator, "purge", form)
    assert "Purged 1 task in mail. Skipped: 1 changed in the meantime." in said(operator, answer)
    assert alive() == [taken.id]


def test_it_counts_selected_tasks_that_have_gone(operator):
    first, second = add(count=2)
    Task.objects.commit(owner=first.owner, deletes=[first.id])
    html, _ = ask(operator, "purge", id=[first.id, second.id])
    assert "changed1: skipped" in text(html)


def test_it_has_nothing_to_ask_when_all_would_be_skipped(operator):
    [task] = add()
    html, _ = ask(operator, "requeue", id=task.id)
    assert "Nothing to requeue" in html
    assert 'name="reason"' not in html
    assert ">Close</a>" in html


def test_it_never_reaches_into_another_group(operator):
    [task] = add("reports")
    html, form = ask(operator, "purge", id=task.id)
    assert "Nothing to purge" in html
    agree(operator, "purge", form)
    assert alive("reports") == [task.id]


def test_it_leads_a_script_to_the_next_page(operator):
    [task] = add()
    _, form = ask(operator, "purge", id=task.id)
    answer = operator.post("/console/purge", form, headers={"HX-Request-Type": "partial"})
    assert answer.headers["HX-Redirect"] == "/console/group?name=mail"
    assert alive() == []


def test_it_counts_an_id_once_that_is_selected_twice(operator):
    [task] = add()
    html, form = ask(operator, "purge", id=[task.id, task.id])
    assert "Purge 1 task from mail?" in text(html)
    assert form["id"] == [str(task.id)]


@pytest.mark.parametrize("verb", ["requeue", "move", "edit", "purge"])
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": ""}, "name"), ({"name": "a\0"}, "name"), ({"id": []}, "id"), ({"id": ["x"]}, "id[0]"),
        ({"id": ["1", "1_0"]}, "id[1]"), ({"id": [str(2**63)]}, "id[0]"), ({"id": ["-1"]}, "id[0]"),
        ({"expected": ""}, "expected"), ({"expected": "-1"}, "expected"), ({"bound": "x"}, "bound"),
        ({"reason": "x" * 1_001}, "reason"), ({"reason": "\0"}, "reason"), ({"task": "x"}, "task"),
        ({"id": [], "all": "1", "state": "x"}, "state"), ({"state": "x"}, "state"),
    ],
)  # fmt: skip
def test_it_names_what_makes_no_sense_and_changes_nothing(operator, verb, wrong, field):
    add("reports")
    [task] = add()
    form = {"name": "mail", "id": [str(task.id)], "expected": "1", "bound": str(task.id), "to": "reports"}
    answer = operator.post(f"/console/{verb}", {**form, **wrong})
    assert answer.status_code == 400
    assert f"<code>{field}</code>:" in answer.content.decode()
    assert alive() == [task.id]
    assert not AuditEntry.objects.exists()


def test_it_takes_what_workers_hold_when_that_is_ticked(operator):
    add()
    claim()
    html, form = ask(operator, "requeue", all=1)
    assert "Requeue 0 tasks" in text(html)
    assert "Include 1 leased task; its worker&#x27;s result will be rejected" in text(html)
    agree(operator, "requeue", form, take_claimed="1")
    [task] = Task.objects.all()
    assert not task.leased


def test_it_asks_about_all_that_a_search_finds(operator):
    for group in ("mail", "reports"):
        fail(add(group)[0], "timed out")
    add()
    query = {"verb": "edit", "q": "error:timed", "all": 1}
    html = operator.get("/console/confirm", query).content.decode()
    assert "Edit 2 tasks in several groups?" in text(html)
    form = form_of(html)
    assert agree(operator, "edit", form).status_code == 422
    answer = agree(operator, "edit", form, set_error="1", error="known", set_priority="1", priority="-3")
    assert answer.headers["Location"] == "/console/search?q=error%3Atimed"
    assert "Edited 2 tasks." in said(operator, answer)
    assert sorted(Task.objects.values_list("error", "priority")) == [("", 0), ("known", -3), ("known", -3)]


def test_it_never_means_all_tasks_of_the_store(operator):
    answer = operator.get("/console/confirm", {"verb": "purge", "q": " ", "all": 1})
    assert answer.status_code == 400
    assert "the console never changes all tasks of the store" in answer.content.decode()


@pytest.mark.parametrize(
    ("verb", "wrong", "field"),
    [
        ("requeue", {"at": "soon"}, "at"),
        ("requeue", {"spread_minutes": "-1"}, "spread_minutes"),
        ("edit", {"set_priority": "1", "priority": "1e3"}, "priority"),
    ],
)
def test_it_names_parameters_that_make_no_sense(operator, verb, wrong, field):
    [task] = add()
    _, form = ask(operator, verb, id=task.id)
    answer = agree(operator, verb, form, **wrong)
    assert answer.status_code == 400
    assert f"<code>{field}</code>:" in answer.content.decode()


def test_it_requeues_at_a_time_and_spreads_it(operator):
    tasks = [fail(task) for task in add(count=2)]
    _, form = ask(operator, "requeue", id=[task.id for task in tasks])
    agree(operator, "requeue", form, at="2100-01-31T14:00", spread_minutes="10")
    times = sorted(Task.objects.values_list("available_at_ms", flat=True))
    assert times == [4_105_087_200_000, 4_105_087_500_000]
