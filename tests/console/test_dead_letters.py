"""Dead letters in the console: the question says where they go, in each place that asks it."""

import re

import pytest

from tasks_app.models import Task

from ..bulk.test_dead_letters import letter, now, schedule
from .store import add
from .test_changes import agree, form_of, text
from .test_editing import differences, opened, send
from .test_editing import form_of as edit_form_of
from .test_overview import numbers

pytestmark = pytest.mark.django_db


def ask(client, **query):
    answer = client.get("/console/confirm", {"verb": "requeue", **query})
    assert answer.status_code == 200
    return answer.content.decode()


def button(html):
    """What it says as long as nothing is ticked."""
    [found] = re.findall(r'<span class="without-claimed">([^<]*)<', html)
    return found


@pytest.mark.parametrize(
    "query",
    [
        {"name": "mail/failed", "all": 1},
        {"name": "mail/failed", "all": 1, "state": "failed"},
        {"q": "error:boom", "all": 1},
        {"q": "failed_from:mail", "all": 1},
    ],
)
def test_the_button_says_where_to(operator, query):
    letter(), letter()
    html = ask(operator, **query)
    assert button(html) == "Send back to mail (2 tasks)"
    assert re.search(r"requeued to ?mail ?2", text(html))
    assert "Dead letters return to the group in which they failed" in text(html)


def test_a_single_task_goes_back(operator):
    there = letter()
    assert "Requeue…" in operator.get(f"/console/task/{there.id}").content.decode()
    html = ask(operator, name="mail/failed", id=there.id, task=there.id)
    assert button(html) == "Send back to mail"
    agree(operator, "requeue", form_of(html))
    assert (now(there).group, now(there).error, now(there).labels) == ("mail", "", {})
    story = text(operator.get(f"/console/task/{there.id}").content.decode())
    assert "Failed, moved to mail/failed" in story
    assert "Sent back to mail" in story


def test_several_targets_are_named_with_their_numbers(operator):
    letter("mail", "all/failed"), letter("news", "all/failed"), letter("news", "all/failed")
    html = ask(operator, name="all/failed", all=1)
    assert button(html) == "Send back to 2 groups (3 tasks)"
    assert re.search(r"requeued to ?news ?2 ?mail ?1", text(html))
    add("all/failed", error="boom")
    assert button(ask(operator, name="all/failed", all=1)) == "Requeue 4 tasks in 3 groups"


def test_a_dead_letter_is_edited_and_sent_back_in_one(operator):
    there = letter(labels={"tier": "gold", "attempts": "2"})
    html = operator.get(f"/console/task/{there.id}/edit").content.decode()
    assert "the task returns to" in html
    assert "failed_from" not in opened(operator, there)["labels"]
    review = send(operator, there, opened(operator, there) | {"content": "right"}).content.decode()
    assert differences(review)["Group"] == ["-mail/failed", "+mail", ""]
    send(operator, there, edit_form_of(review) | {"confirmed": "1"}, status=302)
    back = Task.objects.get()
    assert (back.group, bytes(back.data), back.error, back.labels) == ("mail", b"right", "", {"tier": "gold"})


def test_an_edit_requeues_no_command_that_has_ended(operator, settings):
    settings.TASKSTORE_COMMANDS = True
    [task] = add("commands/x/failed_count", error="boom")
    html = send(operator, task, opened(operator, task), status=422).content.decode()
    assert "retry it in its project" in html


def test_what_feeds_commands_is_left_alone(operator, settings):
    settings.TASKSTORE_COMMANDS = True
    feeding = schedule()
    asked = {"verb": "move", "name": "schedules", "id": feeding.id}
    assert operator.get("/console/confirm", asked).status_code == 403
    assert (
        operator.post(
            "/console/move", asked | {"to": "x", "create": "1", "expected": "1", "bound": feeding.id, "as_of": "1"}
        ).status_code
        == 403
    )
    assert Task.objects.get().id == feeding.id


# ---- What has ended is not ready


def test_the_page_of_such_a_group_has_no_tab_for_ready_ones(viewer):
    add("jobs/default/failed", count=3, error="boom")
    html = viewer.get("/console/group", {"name": "jobs/default/failed"}).content.decode()
    assert numbers(html, "data-live-count") == {"total": "3", "finished": "0", "failed": "3"}
