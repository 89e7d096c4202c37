"""The page of a task."""

import re
from typing import Any

import pytest

from tasks_app.bulk import Move, Requeue, Selection
from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.models import EndedTask, Task
from tasks_app.reading.history import chain_of
from taskstore.types.tasks import Change

from .store import BOB, add, change_all, claim, claimed_task, fail

pytestmark = pytest.mark.django_db


def page(client, task_id, query=""):
    answer = client.get(f"/console/task/{task_id}{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def text(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html))


def test_it_is_found_by_every_id_it_ever_had(viewer):
    [first] = add()
    [second] = claim()
    third = fail(second)
    for task in (first, second, third):
        assert f"<title>Task {third.id} · Task Store</title>" in page(viewer, task.id)
    assert f"found by its first id, {first.id}" in text(page(viewer, first.id))


HISTORY = {
    "full": "history is pruned after 7 days",
    "finished": "history keeps only how tasks ended, and is pruned after 7 days",
    "off": "history is switched off",
}


@pytest.mark.parametrize("kept", HISTORY)
def test_it_says_why_nothing_is_known_of_an_id(viewer, settings, kept):
    settings.TASKSTORE_HISTORY = kept
    [task] = add()
    Task.objects.commit(owner=0, deletes=[task.id])
    EndedTask.objects.all().delete()
    answer = viewer.get(f"/console/task/{task.id}")
    assert answer.status_code == 404
    assert f"does not exist, or its history has expired ({HISTORY[kept]}). It may continue" in text(
        answer.content.decode()
    )


@pytest.mark.parametrize("task_id", [2**63 - 1, 2**63, 10**30])
def test_it_bears_ids_beyond_all_bounds(viewer, task_id):
    assert viewer.get(f"/console/task/{task_id}").status_code == 404


def test_it_shows_data_as_the_message_that_its_type_names(operator):
    name = "type.googleapis.com/google.protobuf.Duration"
    [task] = add(data=b"\x08\x5a", data_type=name)
    assert '<span class="string">&quot;90s&quot;</span>' in page(operator, task.id)
    assert f"2 B · protobuf · {name}" in page(operator, task.id)
    assert "08 5a" in page(operator, task.id, "?as=hex")
    [broken] = add(data=b"\xff", data_type=name)
    assert "The data is not a valid google.protobuf.Duration." in page(operator, broken.id)
    [large] = add(data=b"x" * 10**6, data_type=name)
    assert "Data larger than 64 kB is not decoded" in page(operator, large.id)


def test_it_reads_no_more_of_large_data_than_it_shows(operator):
    [task] = add(data=b"\xff" * 1_000_000)
    chain = chain_of(task.id, data_bytes=4)
    living: Any = chain and chain.living
    assert (bytes(living.data_start), living.data_size) == (b"\xff" * 4, 1_000_000)
    assert living.get_deferred_fields() == {"data"}
    assert len(page(operator, task.id, "?as=hex")) < 200_000


def test_it_hides_data_from_those_who_may_not_see_it(viewer):
    [task] = add(data=b"a secret")
    for query in ("", "?as=text", "?as=hex"):
        html = page(viewer, task.id, query)
        assert "a secret" not in html
        assert "61 20 73" not in html
        assert "have permission to see task data" in html
    assert viewer.get(f"/console/task/{task.id}/data").status_code == 403


def test_it_lets_data_be_saved_and_never_run(operator):
    [task] = add(data=b"<script>alert(1)</script>\x00\xff")
    answer = operator.get(f"/console/task/{task.id}/data")
    assert answer.content == b"<script>alert(1)</script>\x00\xff"
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="task-{task.id}"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "no-store" in answer.headers["Cache-Control"]


def test_it_names_a_form_that_does_not_exist(operator):
    [task] = add()
    answer = operator.get(f"/console/task/{task.id}?as=picture")
    assert answer.status_code == 400
    assert "<code>as</code>: must be one of message, tree, text, hex" in answer.content.decode()


def test_it_shows_the_record_of_a_finished_task(operator):
    task = claimed_task("mail")
    Task.objects.commit(owner=BOB, deletes=[task.id])
    html = page(operator, task.origin)
    assert 'data-state="finished"' in html
    assert "endeddeleted by 2624" in text(html)
    assert "The data was deleted when the task ended" in html
    assert "/console/confirm" not in html


def test_it_says_why_the_task_waits(operator, clock):
    [task] = add("mail", error="no such recipient", labels={"attempts": "1"}, timespec_ms=-40_000)
    shown = text(operator.get(f"/console/task/{task.id}").content.decode())
    assert "Retrying: attempt 2, in 40 s." in shown
    clock.advance(60_000)
    pauses.pause("mail", Actor("Ann", reason="deploy"))
    shown = text(operator.get(f"/console/task/{task.id}").content.decode())
    assert re.search(r"mail: Paused by Ann \S.*: deploy\. 1 waiting\. It hands out no tasks", shown)


def test_it_tells_what_happened(viewer, clock):
    [task] = add()
    clock.advance(3_100)
    [claimed] = claim(duration_ms=60_000)
    clock.advance(72_000)
    [again] = claim(duration_ms=60_000, owner=4811)
    clock.advance(400)
    failed = fail(again, error="empty recipient")
    change_all(Requeue, Selection(group="mail", ids=(failed.id,)), by="admin", reason="address fixed")
    story = text(page(viewer, task.id))
    places = [story.index(words) for words in (
        "Added to mail", "Claimed by 2624", "waited 3.1 s", "lease 1 min", "Lease of 2624 ran out", "held 1 min",
        "Claimed by 4811", "waited 12 s", "Failed, reported by 4811", "empty recipient", "held 400 ms",
        "Requeued by admin", "“address fixed”",
    )]  # fmt: skip
    assert places == sorted(places)
    assert claimed.id < failed.id


def test_it_tells_what_a_task_became_whose_past_is_not_known(viewer):
    task = freed(claimed_task("mail"))
    EndedTask.objects.all().delete()
    story = text(page(viewer, task.id))
    assert "Continued under another id" in story
    assert str(task.id) in story


def test_it_does_not_take_a_later_step_for_one_that_is_not_known(viewer, settings):
    """Where history was reduced for a while: what came next is not what is told next."""
    task = claimed_task("mail")
    change_all(Move, Selection(group="mail", ids=(freed(task).id,)), by="admin", to="reports", create=True)
    [moved] = Task.objects.group("reports")
    settings.TASKSTORE_HISTORY = "off"
    [claimed] = Task.objects.claim("reports", owner=BOB)
    story = text(page(viewer, claimed.id))
    assert "Moved by admin" in story
    assert "Moved to" not in story
    assert "Some steps are missing: history is switched off." in story
    assert moved.id < claimed.id


def freed(task):
    [free] = Task.objects.commit(owner=BOB, updates=[Change(id=task.id, release=True)])
    return free
