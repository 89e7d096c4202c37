"""When a batch closes, and what it adds then: in the caller's transactions."""

import pytest

from tasks_app.core.operations import EVERY_GROUP, BatchStep, Commit, GroupScope, Step
from tasks_app.models import Batch, Task
from taskstore.errors import CommitRefused, InvalidInput
from taskstore.types.batches import Plan
from taskstore.types.tasks import Change, NewTask

ANN = 7
pytestmark = pytest.mark.django_db


def now(batch):
    return Batch.objects.counted().get(pk=batch.id).told()


def numbers(batch):
    told = now(batch)
    return told.total, told.open, told.failed, told.ended


def commit(**asked):
    return Task.objects.commit(owner=ANN, **asked)


def new(group="work", **more):
    return NewTask(group=group, **more)


def made(adds=1, **more):
    return Task.objects.create_batch(owner=ANN, adds=[new() for _ in range(adds)], **more)


def names():
    return sorted(Task.objects.values_list("group", flat=True))


def test_more_is_added_when_it_closes_and_at_once_when_it_has_closed():
    def add_later(group):
        Task.objects.perform(
            Commit(owner=ANN, batch=BatchStep(batch.id, Step.ADD_LATER, Plan(then=Plan((new(group),)))))
        )

    batch, [task] = made(then=new("a"))
    add_later("b")
    add_later("c")
    assert names() == ["work"]
    commit(deletes=[task.id])
    assert names() == ["a", "b", "c"]
    add_later("d")
    assert names() == ["a", "b", "c", "d"]


def test_the_last_end_adds_what_comes_then():
    batch, tasks = made(2, then=[new("sum"), new("mail")])
    assert (batch.total, batch.open, batch.closed_at_ms, {task.batch for task in tasks}) == (2, 2, None, {batch.id})
    commit(deletes=[tasks[0].id])
    assert names() == ["work"]
    answer = commit(adds=[new("other")], deletes=[tasks[1].id])
    assert [task.group for task in answer] == ["other"]
    assert names() == ["mail", "other", "sum"]
    assert numbers(batch) == (2, 0, 0, 2)
    assert now(batch).closed_at_ms


def test_claims_and_updates_go_on_in_the_batch():
    batch, _ = made(then=new("sum"))
    [claimed] = Task.objects.claim("work", owner=ANN)
    [renewed] = commit(updates=[Change(id=claimed.id, timespec_ms=-60_000)])
    [moved] = commit(adds=[NewTask.successor_of(renewed, group="next")], deletes=[renewed.id])
    assert {claimed.batch, renewed.batch, moved.batch} == {batch.id}
    assert numbers(batch) == (1, 1, 0, 0)
    commit(deletes=[moved.id])
    assert names() == ["sum"]


def test_a_dead_letter_keeps_it_open_and_adds_once_what_comes_on_failure():
    batch, tasks = made(2, then=new("sum"), on_failure=new("alarm"))
    dead = commit(updates=[Change(id=task.id, group="dead", error="no") for task in tasks])
    assert names() == ["alarm", "dead", "dead"]
    assert numbers(batch) == (2, 0, 2, 0)
    [again] = commit(updates=[Change(id=dead[0].id, group="work", error="")])
    assert numbers(batch) == (2, 1, 1, 0)
    commit(deletes=[again.id, dead[1].id])
    assert names() == ["alarm", "sum"]


def test_what_failed_for_good_may_count_as_ended():
    batch, [task] = made(then=new("sum"), failed_ends=True)
    [dead] = commit(updates=[Change(id=task.id, group="dead", error="no")])
    assert names() == ["dead", "sum"]
    [again] = commit(updates=[Change(id=dead.id, group="work", error="")])
    assert (again.batch, numbers(batch)) == (0, (1, 0, 1, 0))


def test_a_finished_record_has_ended_and_leaves_when_it_begins_again():
    batch, [task] = made(then=new("sum"))
    [record] = commit(updates=[Change(id=task.id, group="jobs/mail/succeeded")])
    assert (record.batch, numbers(batch), names()) == (batch.id, (1, 0, 0, 1), ["jobs/mail/succeeded", "sum"])
    [again] = commit(updates=[Change(id=record.id, group="jobs/mail")])
    assert again.batch == 0
    commit(deletes=[again.id])
    assert names() == ["sum"]


def test_a_job_that_failed_for_good_has_failed():
    batch, [task] = made(then=new("sum"), on_failure=new("alarm"))
    commit(updates=[Change(id=task.id, group="jobs/mail/failed", error="no")])
    assert (numbers(batch), names()) == ((1, 0, 1, 0), ["alarm", "jobs/mail/failed"])


def test_members_may_be_added_while_it_is_open_also_by_the_last_one():
    batch, [task] = made(then=new("sum"))
    more = commit(adds=[new(batch=batch.id), new(batch=batch.id)], deletes=[task.id])
    assert numbers(batch) == (3, 2, 0, 1)
    commit(deletes=[each.id for each in more])
    assert names() == ["sum"]
    with pytest.raises(CommitRefused, match=f"batch {batch.id} is closed"):
        commit(adds=[new(batch=batch.id)])
    with pytest.raises(CommitRefused, match="batch 999999 does not exist"):
        commit(adds=[new(batch=999999)])


def test_held_it_waits_to_be_released():
    batch, _ = made(0, then=new("sum"), hold=True)
    assert (now(batch).state, names()) == ("held", [])
    [task] = commit(adds=[new(batch=batch.id)])
    commit(deletes=[task.id])
    assert names() == []
    Task.objects.change_batch(batch.id, Step.RELEASE)
    assert names() == ["sum"]
    Task.objects.change_batch(batch.id, Step.RELEASE)
    assert names() == ["sum"]


def test_an_empty_one_closes_at_once():
    batch, _ = made(0, then=new("sum"))
    assert (now(batch).state, names()) == ("succeeded", ["sum"])


def test_a_child_keeps_its_parent_open_and_adds_to_it():
    parent, [task] = made(then=new("end"))
    _, [inner] = made(then=new("between"), parent=parent.id)
    assert numbers(parent) == (2, 2, 0, 0)
    commit(deletes=[task.id])
    assert (now(parent).state, now(parent).children, names()) == ("open", 1, ["work"])
    commit(deletes=[inner.id])
    [between] = Task.objects.all()
    assert (between.group, between.batch, numbers(parent)) == ("between", parent.id, (3, 1, 0, 2))
    commit(deletes=[between.id])
    assert names() == ["end"]


def test_children_close_with_their_parents_in_one_commit():
    top, _ = made(0, then=new("end"), hold=True)
    middle, _ = made(0, parent=top.id, hold=True)
    _, [task] = made(parent=middle.id)
    Task.objects.change_batch(middle.id, Step.RELEASE)
    Task.objects.change_batch(top.id, Step.RELEASE)
    assert names() == ["work"]
    commit(deletes=[task.id])
    assert names() == ["end"]
    assert not Batch.objects.still_open().exists()


def test_plans_within_plans_are_batches_one_after_the_other():
    chain = Plan((new("second"),), then=Plan((new("third"), new("third")), then=Plan((new("fourth"),))))
    made(then=chain)
    seen = []
    while tasks := list(Task.objects.all()):
        seen.append(sorted(task.group for task in tasks))
        commit(deletes=[tasks[0].id])
    assert seen == [["work"], ["second"], ["third", "third"], ["third"], ["fourth"]]
    assert Batch.objects.count() == 3


def test_a_plan_on_failure_may_be_a_batch_too():
    _, [task] = made(on_failure=Plan((new("repair"),), then=Plan((new("report"),))))
    commit(updates=[Change(id=task.id, group="dead", error="no")])
    [repair] = Task.objects.filter(group="repair")
    commit(deletes=[repair.id])
    assert names() == ["dead", "report"]


def test_a_duplicate_joins_no_batch():
    commit(adds=[new(unique="a")])
    batch, [first, second] = Task.objects.create_batch(owner=ANN, adds=[new(unique="a"), new()], then=new("sum"))
    assert (first.duplicate, first.batch, second.batch, numbers(batch)) == (True, 0, batch.id, (1, 1, 0, 0))


def test_a_refused_commit_changes_no_batch():
    batch, [task] = made(then=new("sum"))
    with pytest.raises(CommitRefused):
        commit(deletes=[task.id], depends=[999_999])
    assert (numbers(batch), now(batch).closed_at_ms) == ((1, 1, 0, 0), None)


@pytest.mark.parametrize(
    ("asked", "field", "right"),
    [
        ({"then": [NewTask(group="")]}, "then[0].group", "must not be empty"),
        ({"then": [NewTask(group="a", unique="k")]}, "then[0].unique", "must be absent: a batch adds the task"),
        ({"then": [NewTask(group="a")] * 1_001}, "then", "must have at most 1000 tasks, not 1001"),
        ({"batches": [Plan((NewTask(group="a"),) * 1_001)]}, "batches[0]", "must have at most 1000 tasks, not 1001"),
        ({"batches": [[], [NewTask(group="a", unique="k")]]}, "batches[0].adds[0].unique", "must be absent"),
        ({"then": [NewTask(group="a", priority=1_000)]}, "then[0].priority", "must be between -100 and 100"),
        ({"name": "a" * 256}, "name", "must have at most 255 characters"),
        ({"parent": -1}, "parent", "must be between 0"),
        ({"adds": [NewTask(group="a", batch=-1)]}, "adds[0].batch", "must be between 0"),
        ({"adds": [NewTask(group="a", batch=3)]}, "adds", "must not name a batch"),
    ],
)
def test_what_makes_no_sense_is_refused(asked, field, right):
    with pytest.raises(InvalidInput) as refused:
        Task.objects.create_batch(owner=ANN, **asked)
    assert right in " ".join(refused.value.fields[field])


def test_plans_nest_up_to_a_hundred_times():
    def nested(depth):
        plan = None
        for _ in range(depth):
            plan = Plan((new(),), then=plan)
        return plan

    made(then=nested(100))
    with pytest.raises(InvalidInput, match="must not nest deeper than 100 levels"):
        made(then=nested(101))


def test_only_who_covers_all_groups_sees_it():
    batch, _ = made(hold=True, then=new("secret"))
    narrow = GroupScope(("work",))
    assert not Batch.objects.within(narrow).exists()
    assert Batch.objects.within(GroupScope(("work", "secret"))).exists()
    assert Batch.objects.within(EVERY_GROUP).exists()
    with pytest.raises(CommitRefused, match=f"batch {batch.id} does not exist"):
        commit(adds=[new(batch=batch.id)], scope=narrow)
    with pytest.raises(CommitRefused, match=f"batch {batch.id} does not exist"):
        Task.objects.change_batch(batch.id, Step.RELEASE, narrow)
