"""What batches plan: kept a level at a time, read when it is due, bounded, and explained when it can't be added."""

import json

import pytest

from tasks_app.control import batches as control
from tasks_app.core.operations import BatchStep, Commit, Step
from tasks_app.database import batches, dialect_of, new_groups
from tasks_app.models import Batch, BatchPlan, Scope, Task
from tasks_app.writer.housekeeping import close_batches, forget_plans
from taskstore.errors import CommitRefused, LimitExceeded, TooManyGroups
from taskstore.types.batches import Plan, level_in
from taskstore.types.tasks import Change, NewTask
from tests.rest_api.api import Api

ANN = 7
pytestmark = pytest.mark.django_db


@pytest.fixture
def reads(monkeypatch):
    """The texts of plans that were read."""
    found = list[str]()

    def noted(text):
        found.append(text)
        return level_in(text)

    monkeypatch.setattr(batches, "level_in", noted)
    return found


@pytest.fixture(autouse=True)
def no_groups_known():
    new_groups.memories.clear()
    yield
    new_groups.memories.clear()


def new(group="work", **more):
    return NewTask(group=group, **more)


def made(adds=1, **more):
    return Task.objects.create_batch(owner=ANN, adds=[new() for _ in range(adds)], **more)


def commit(**asked):
    return Task.objects.commit(owner=ANN, **asked)


def names():
    return sorted(Task.objects.values_list("group", flat=True))


def levels():
    return sorted(level.partition("/")[2] for level in BatchPlan.objects.values_list("level", flat=True))


def told(batch):
    return control.batch_of(batch.id)


def housekeep(chore=close_batches):
    dialect = dialect_of("default")
    dialect.drive(chore(dialect))


def chain(*groups):
    plan = None
    for group in reversed(groups):
        plan = Plan((new(group),), then=plan)
    return plan


def test_a_plan_is_read_only_when_it_is_due(reads):
    held, [task] = made(hold=True, then=new("end"), on_failure=new("alarm"))
    commit(deletes=[task.id])
    [more] = commit(adds=[new(batch=held.id)])
    commit(updates=[Change(id=more.id, group="elsewhere")])
    assert reads == []
    Task.objects.change_batch(held.id, Step.RELEASE)
    assert reads == []
    commit(deletes=[Task.objects.get().id])
    assert (len(reads), names()) == (1, ["end"])


def test_a_batch_with_open_batches_within_reads_nothing(reads):
    top, [task] = made(then=new("end"))
    _, [inner] = made(parent=top.id)
    commit(deletes=[task.id])
    assert reads == []
    commit(deletes=[inner.id])
    assert (len(reads), names()) == (1, ["end"])


def test_each_level_is_written_and_read_once(reads):
    _, [task] = made(then=chain("a", "b", "c"), on_failure=chain("x", "y"))
    before = dict(BatchPlan.objects.values_list("level", "pk"))
    assert levels() == ["f", "ft", "t", "tt", "ttt"]
    commit(deletes=[task.id])
    assert (levels(), len(reads)) == (["tt", "ttt"], 1)
    assert before.items() >= dict(BatchPlan.objects.values_list("level", "pk")).items()
    for left in (["ttt"], []):
        commit(deletes=[Task.objects.get().id])
        assert levels() == left
    assert (names(), len(reads)) == (["c"], 3)


def test_what_has_failed_goes_on_with_its_own_levels():
    _, [task] = made(then=new("end"), on_failure=chain("repair", "report"))
    [dead] = commit(updates=[Change(id=task.id, group="dead", error="no")])
    assert levels() == ["ft", "t"]
    commit(deletes=[dead.id])
    assert (names(), levels()) == (["end", "repair"], ["ft"])
    commit(deletes=[Task.objects.get(group="repair").id])
    assert (names(), levels()) == (["end", "report"], [])


def test_a_batch_that_is_opened_again_adds_nothing_twice():
    batch, [task] = made(then=new("end"))
    commit(deletes=[task.id])
    Task.objects.change_batch(batch.id, Step.DELETE)
    Task.objects.change_batch(batch.id, Step.REOPEN)
    assert (names(), told(batch).state) == (["end"], "succeeded")


def test_the_plan_of_a_deleted_batch_is_forgotten_with_it():
    batch, _ = made(then=chain("a", "b"))
    Task.objects.change_batch(batch.id, Step.DELETE)
    housekeep(forget_plans)
    assert levels() == ["t", "tt"]
    Batch.objects.all().delete()
    housekeep(forget_plans)
    assert levels() == []


def test_a_whole_plan_is_bounded(settings):
    settings.TASKSTORE_MAX_PLAN_BYTES = 1_000
    fitting, too_much = new("end", data=b"a" * 300), new("end", data=b"a" * 900)
    made(then=fitting)
    for plans in ({"then": too_much}, {"then": chain("a"), "on_failure": Plan((new("b"),), then=Plan((too_much,)))}):
        with pytest.raises(LimitExceeded) as refused:
            made(**plans)
        assert "must have at most 1000 bytes, not" in " ".join(refused.value.fields["then"])
    held, _ = made(then=fitting, hold=True)
    later = Commit(owner=ANN, batch=BatchStep(held.id, Step.ADD_LATER, Plan(then=Plan((fitting,)))))
    Task.objects.perform(later)
    with pytest.raises(CommitRefused, match=f"batch {held.id} may plan at most 1000 bytes of tasks, not"):
        Task.objects.perform(later)


def test_a_request_that_plans_too_much_is_told_so(settings):
    settings.TASKSTORE_MAX_PLAN_BYTES = 1_000
    status, answer = Api(Scope.WORK).post("/batches", {"clientid": 1, "then": [{"group": "a", "data": "a" * 900}]})
    assert status == 413
    assert list(answer["errors"]) == ["then"]


def test_planned_groups_count_when_they_are_planned(settings):
    settings.TASKSTORE_MAX_GROUPS = 4
    with pytest.raises(TooManyGroups) as refused:
        made(then=[new(f"g{number}") for number in range(5)])
    assert "the store has 0 of at most 4 groups" in str(refused.value)
    assert not Batch.objects.exists()


def test_a_plan_that_would_exceed_the_groups_later_waits_and_says_why(settings):
    batch, [task] = made(then=[new("a"), new("b")])
    settings.TASKSTORE_MAX_GROUPS = 1
    commit(deletes=[task.id])
    assert (names(), told(batch).state, told(batch).lost_rights) == ([], "held", False)
    assert "of at most 1 groups (TASKSTORE_MAX_GROUPS)" in told(batch).problem
    api = Api(Scope.WORK)
    assert api.get(f"/batches/{batch.id}")[1]["problem"] == told(batch).problem
    settings.TASKSTORE_MAX_GROUPS = 10
    new_groups.memories.clear()
    housekeep()
    assert (names(), told(batch).state, told(batch).problem) == (["a", "b"], "succeeded", "")


def test_what_is_added_to_a_batch_with_a_problem_is_kept_too(settings):
    batch, [task] = made(then=new("a"))
    settings.TASKSTORE_MAX_GROUPS = 0
    commit(deletes=[task.id])
    settings.TASKSTORE_MAX_GROUPS = 10
    new_groups.memories.clear()
    Task.objects.perform(Commit(owner=ANN, batch=BatchStep(batch.id, Step.ADD_LATER, Plan(then=Plan((new("b"),))))))
    housekeep()
    assert names() == ["a", "b"]


def test_more_than_one_transaction_should_read_is_left_to_the_housekeeper(monkeypatch):
    monkeypatch.setattr(batches, "READ_AT_ONCE", 1)
    tasks = [made(then=new(f"end{number}"))[1][0].id for number in range(3)]
    commit(deletes=tasks)
    assert len(names()) == 1
    housekeep()
    housekeep()
    housekeep()
    assert names() == ["end0", "end1", "end2"]


def test_the_answer_says_that_there_is_no_parent():
    batch, _ = made()
    assert Api(Scope.WORK).get(f"/batches/{batch.id}")[1]["parent"] is None
    assert json.dumps(Api(Scope.WORK).get("/batches")[1]["batches"][0]["parent"]) == "null"


def on_the_wire(groups, data):
    plan: list[dict[str, str]] | dict[str, object] = [{"group": "last", "data": data}]
    for group in reversed(groups):
        plan = {"adds": [{"group": group, "data": data}] * 3, "then": plan, "on_failure": [{"group": "alarm"}]}
    return plan


@pytest.mark.parametrize("innermost", [[{"group": "last"}], {"adds": [{"group": "last"}]}])
def test_plans_nest_a_hundred_levels_deep_and_no_deeper(innermost):
    plan = innermost
    for _ in range(99):
        plan = {"adds": [{"group": "mail"}], "then": plan}
    api = Api(Scope.WORK)
    assert api.post("/batches", {"clientid": 1, "hold": True, "then": plan})[0] == 200
    plan = {"adds": [{"group": "mail"}], "then": plan}
    status, answer = api.post("/batches", {"clientid": 1, "hold": True, "on_failure": plan})
    assert (status, answer["detail"]) == (400, "on_failure: must not nest deeper than 100 levels")


@pytest.mark.parametrize(("then", "but"), [("x", "a string"), (5, "5"), (True, "a boolean")])
def test_what_is_no_plan_is_told_both_forms(then, but):
    status, answer = Api(Scope.WORK).post("/batches", {"clientid": 1, "then": then})
    assert (status, answer["errors"]) == (400, {"then": [f"must be a list or an object, not {but}"]})


@pytest.mark.django_db(transaction=True)
def test_a_large_request_plans_what_a_small_one_plans():
    """A large one is read by another process, level by level."""
    api = Api(Scope.WORK)
    kept = []
    for size in (1, 30_000):
        within = {"adds": [{"group": "in", "data": "x" * size}], "steps": [[{"group": "next", "data": "x" * size}]]}
        body = {"clientid": 1, "key": f"of {size}", "hold": True, "then": on_the_wire("abc", "x" * size)}
        body |= {"batches": [within, within], "steps": [{"batches": [within]}, [{"group": "last"}]]}
        (status, answer), (_, again) = api.post("/batches", body), api.post("/batches", body)
        assert (status, again["batch"]["id"]) == (200, answer["batch"]["id"])
        rows = BatchPlan.objects.filter(root=answer["batch"]["id"]).order_by("pk")
        kept.append([(row.level.partition("/")[2], row.number, row.words, row.groups, row.holder) for row in rows])
        assert Task.objects.filter(group="in").count() == 2
        Task.objects.commit(owner=ANN, deletes=[task.id for task in Task.objects.all()])
    assert kept[0] == kept[1]
    assert len(kept[0]) == 7 + 2 + 2 + 1
