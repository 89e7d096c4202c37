"""Requeue, move and purge: the question, the deed, the audit log."""

import re

import pytest

from tasks_app import bulk
from tasks_app.models import AuditEntry, Task

from .store import add, claim, fail, one_of_each_state

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
    assert "Purge 6 tasks from mail?" in question
    for words in ("All tasks as of", "tasks added later are not affected", "You can undo this for seven days."):
        assert words in question
    for words in (
        "ready1",
        "claimed1: skipped unless included below",
        "expired1",
        "scheduled1",
        "retrying1",
        "failed1",
    ):
        assert words in question
    shown = html.split("<dt>examples")[1].split("</ul>")[0]
    found = {int(text(each).split()[0].replace("no", "")) for each in shown.split("</li>")[:-1]}
    assert len(found & {task.id for task in tasks.values()}) == bulk.SAMPLES
    assert "Purge 5 tasks" in question
    assert form["expected"] == ["6"]


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


@pytest.mark.parametrize("typed", ["", "Mail", " mail"])
def test_it_purges_no_group_without_its_typed_name(operator, typed):
    tasks = add(count=3)
    html, form = ask(operator, "purge", all=1)
    assert "Type mail to confirm" in text(html)
    answer = agree(operator, "purge", form, typed=typed)
    assert answer.status_code == 422
    assert 'id="typed-error"' in answer.content.decode()
    assert alive() == [task.id for task in tasks]


def test_it_wants_the_name_for_more_than_a_thousand_tasks_of_one_state(operator):
    add(count=1_001)
    html, form = ask(operator, "purge", all=1, state="ready")
    assert 'name="typed"' in html
    assert agree(operator, "purge", form).status_code == 422
    assert len(alive()) == 1_001


def test_it_asks_again_when_much_more_would_be_changed(operator):
    tasks = claim_all(add(count=30))
    _, form = ask(operator, "requeue", all=1, state="retrying")
    for task in tasks[:20]:
        fail(task)
    answer = agree(operator, "requeue", form)
    assert answer.status_code == 422
    html = answer.content.decode()
    assert "The selection changed from 0 to 20 tasks. Review and confirm." in html
    assert form_of(html)["expected"] == ["20"]
    assert Task.objects.get_queryset().with_error().count() == 20
    assert not AuditEntry.objects.exists()


def claim_all(tasks):
    return claim(count=len(tasks))


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
