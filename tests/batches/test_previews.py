"""The preview of a purge names the batches that it closes."""

import pytest

from tasks_app.bulk import Purge, Requeue, Selection, selection
from tasks_app.core.operations import GroupScope, Step
from tasks_app.models import Batch, Scope, Task
from taskstore.types.tasks import Change, NewTask
from tests.rest_api.api import Api

pytestmark = pytest.mark.django_db


def made(*groups, **more):
    batch, tasks = Task.objects.create_batch(owner=1, adds=[NewTask(group=group) for group in groups], **more)
    return batch.id, [task.id for task in tasks]


def closed_by(action=None, **selected):
    return [batch.id for batch in seen(action, **selected) if not batch.waits]


def seen(action=None, **selected):
    return selection.preview(Selection(**selected), action or Purge()).closes


def test_it_names_those_that_wait_for_nothing_else():
    whole, _ = made("mail", "mail")
    made("mail", "reports")
    made("mail", hold=True)
    outer, _ = made("mail")
    inner, _ = made("mail", parent=outer)
    assert closed_by(group="mail") == [whole, outer, inner]
    assert closed_by(group="reports") == []
    assert closed_by(Requeue(), group="mail") == []


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


def test_it_says_what_is_not_made_then():
    followed = {"steps": [NewTask(group="bind"), [NewTask(group="print")] * 2], "on_failure": NewTask(group="alarm")}
    made("mail", **followed)
    made("mail", failed_ends=True, then=NewTask(group="end"))
    made("mail", failed_ends=True, **followed)  # It goes on.
    assert [batch.outcome for batch in seen(group="mail")] == [
        "as failed; its 3 follow-up tasks are not made",
        "as succeeded; its 1 follow-up task is made",
    ]


def test_it_names_those_that_can_not_succeed_any_more():
    outer, _ = made("other", then=NewTask(group="print"))
    inner, [first, *_] = made("mail", "other", "mail", parent=outer, then=[NewTask(group="bind")] * 2)
    made("mail", "other", failed_ends=True)
    made("other")
    assert [(batch.id, batch.outcome) for batch in seen(group="mail")] == [
        (outer, "as failed once its other tasks have ended; its 3 follow-up tasks are not made"),
        (inner, "as failed once its other tasks have ended; its 2 follow-up tasks are not made"),
    ]
    Task.objects.cancel([first])
    assert seen(group="mail") == []  # That is known.
    Task.objects.commit(owner=1, deletes=Task.objects.filter(batch=inner, group="other").values_list("id", flat=True))
    assert [(batch.id, batch.waits) for batch in seen(group="mail")] == [(outer, True), (inner, False)]


def test_a_held_batch_fails_once_it_is_released():
    batch, _ = made("mail", hold=True)
    assert [(each.id, each.waits) for each in seen(group="mail")] == [(batch, True)]


@pytest.mark.parametrize("verb", ["purge", "cancel"])
@pytest.mark.parametrize("group", ["mail", "jobs/mail"])
def test_what_counts_as_done_lets_its_batch_go_on(verb, group):
    api = Api(Scope.OPERATE)
    batch, [first, _] = made(group, group, then=NewTask(group="end"), on_failure=NewTask(group="alarm"))
    Task.objects.commit(owner=1, updates=[Change(id=first, group="dead", error="no")])
    undone = []
    for which in (f"batch:{batch} group:{group}", f"batch:{batch}"):
        _, seen = api.post("/bulk/preview", {"verb": verb, "q": which})
        asked = {"verb": verb, "q": which, "bound": seen["bound"], "as_of": seen["as_of"], "expected": seen["count"]}
        status, operation = api.post("/bulk", {**asked, "counts_as_done": True, "reason": "known"})
        assert (status, operation["done"], operation["parameters"]["counts_as_done"]) == (202, 1, True)
        undone.append(operation["id"])
    told = Batch.objects.counted().get(pk=batch).told()
    assert (told.state, told.total, told.ended, told.failed) == ("succeeded", 2, 2, 0)
    assert Task.objects.filter(group="end").count() == 1
    assert Task.objects.filter(group="alarm").count() == 1  # Because of the dead letter.
    assert not Task.objects.exclude(batch=0).exists()
    for number in undone:
        assert api.post(f"/operations/{number}/undo", {"reason": "after all"})[0] == 202
    assert sorted(Task.objects.values_list("group", "batch")) == sorted(
        [("alarm", 0), ("dead", 0), ("end", 0), (group, 0)]
    )


def test_the_console_offers_it_where_batches_close(operator):
    made("mail", then=NewTask(group="end"))
    address = "/console/confirm?verb=purge&name=mail&all=1"
    page = operator.get(address).content.decode()
    assert "as failed; its 1 follow-up task is not made" in page
    assert "counts_as_done" in page
    Task.objects.commit(owner=1, adds=[NewTask(group="other")])
    assert "counts_as_done" not in operator.get("/console/confirm?verb=purge&name=other&all=1").content.decode()


def test_the_console_links_to_them(operator):
    batch, _ = made("mail")
    page = operator.get("/console/confirm?verb=purge&name=mail&all=1").content.decode()
    assert f'<a href="/console/batches/{batch}">batch {batch}</a>' in page
