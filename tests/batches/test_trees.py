"""Batches within batches: planned together, counted together, failed, completed and deleted together."""

from dataclasses import replace

import pytest

from tasks_app.bulk.starting import delete_batch, undo
from tasks_app.control import batches as control
from tasks_app.core.actors import Actor
from tasks_app.core.operations import GroupScope, Step
from tasks_app.database import new_groups
from tasks_app.models import Batch, BatchPlan, Scope, Task
from taskstore.errors import Forbidden, InvalidInput
from taskstore.types.batches import BatchesRequest, Plan
from taskstore.types.tasks import Change, NewTask
from tests.rest_api.api import Api

ANN = 7
OLAF = Actor("olaf")
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_groups_known():
    new_groups.memories.clear()
    yield
    new_groups.memories.clear()


def steps(*levels):
    """A plan of which each level follows the one before: names of groups, or plans of batches."""
    return Plan(steps=tuple(map(level_of, levels)))


def level_of(parts):
    adds = tuple(NewTask(group=part) for part in parts if isinstance(part, str))
    return Plan(adds, batches=tuple(part for part in parts if not isinstance(part, str)))


def make(*levels, alarm="alarm", **more):
    plan, failing = steps(*levels), NewTask(group=alarm) if alarm else None
    batch, _ = Task.objects.create_batch(
        owner=ANN, name="film", adds=plan.adds, batches=plan.batches, steps=plan.steps, on_failure=failing, **more
    )
    return batch.id


def groups():
    return " ".join(sorted(Task.objects.values_list("group", flat=True)))


def end(*names):
    for name in names:
        Task.objects.commit(owner=ANN, deletes=[Task.objects.filter(group=name).earliest("id").id])


def fail(name):
    [dead] = Task.objects.commit(
        owner=ANN, updates=[Change(id=Task.objects.filter(group=name).earliest("id").id, group="dead", error="no")]
    )
    return dead.id


def told(batch):
    return control.batch_of(batch)


def completed(batch):
    return control.complete(batch, OLAF)


def released(batch):
    return control.release(batch, OLAF)


def numbers(batch):
    whole = told(batch)
    return whole.total, whole.open, whole.failed, whole.ended, whole.planned


def test_a_chain_is_one_batch_with_one_end():
    whole = make(["a"], ["b", "b"], ["c"])
    assert (numbers(whole), groups()) == ((1, 1, 0, 0, 3), "a")
    end("a")
    assert (numbers(whole), groups()) == ((3, 2, 0, 1, 1), "b b")
    end("b", "b")
    assert (numbers(whole), groups(), told(whole).state) == ((4, 1, 0, 3, 0), "c", "open")
    end("c")
    assert (numbers(whole), groups(), told(whole).state) == ((4, 0, 0, 4, 0), "", "succeeded")
    assert not Batch.objects.still_open().exists()
    assert not BatchPlan.objects.exists()
    assert [batch.id for batch in control.batches_in(BatchesRequest()).batches] == [whole]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_failure_in_any_step_is_one_of_the_whole_and_told_once(place):
    whole = make(["a"], ["b"], ["c"])
    names = ["a", "b", "c"]
    end(*names[:place])
    dead = fail(names[place])
    assert (groups(), told(whole).is_stuck, told(whole).state) == ("alarm dead", True, "open")
    Task.objects.commit(owner=ANN, updates=[Change(id=dead, group=names[place], error="")])
    again = fail(names[place])
    assert groups() == "alarm dead"  # Not a second time.
    end("alarm")
    Task.objects.commit(owner=ANN, updates=[Change(id=again, group=names[place], error="")])
    end(*names[place:])
    assert (groups(), told(whole).state) == ("", "succeeded")


def test_a_failure_that_does_not_come_back_ends_the_whole():
    whole = make(["a"], ["b"], ["c"])
    end("a")
    Task.objects.cancel([Task.objects.get(group="b").id])
    end("alarm")
    assert (groups(), told(whole).state, told(whole).failed, told(whole).gone) == ("", "failed", 1, 1)
    assert not BatchPlan.objects.exists()


def test_chains_within_a_group_are_joined():
    whole = make([steps(["a"], ["b"]), steps(["c"], ["d"]), "e"], ["join"])
    assert (groups(), numbers(whole)) == ("a c e", (3, 3, 0, 0, 3))
    end("a", "b", "e", "c")
    assert groups() == "d"
    end("d")
    assert groups() == "join"
    end("join")
    assert (told(whole).state, told(whole).total) == ("succeeded", 6)


def test_a_planned_group_of_chains_of_groups_is_joined():
    inner = steps(["c", steps(["d"], ["e"])], ["f"])
    whole = make(["a"], [inner, "b"], [steps(["g"], ["h"])], ["join"])
    assert sorted(row.partition("/")[2] for row in BatchPlan.objects.values_list("level", flat=True)) == [
        "f", "s0001.", "s0002.", "s0002.0.s0001.", "s0003.", "s0003.0.0.s0001.", "s0003.0.s0001.",
    ]  # fmt: skip
    assert numbers(whole) == (1, 1, 0, 0, 8)
    end("a")
    assert groups() == "b c d"
    end("b", "c", "d")
    assert groups() == "e"
    end("e")
    assert groups() == "f"
    end("f")
    assert groups() == "g"
    end("g")
    assert groups() == "h"
    end("h", "join")
    assert (told(whole).state, told(whole).total, groups()) == ("succeeded", 9, "")
    assert not Batch.objects.still_open().exists()


def test_a_step_of_a_group_tells_its_own_failure_before_that_of_the_whole():
    own = replace(steps(["a"], ["b"]), on_failure=Plan((NewTask(group="own"),)))
    whole = make([own, "c"], ["join"])
    end("a")
    dead = fail("b")
    assert groups() == "alarm c dead own"
    end("c", "own", "alarm")
    assert told(whole).is_stuck
    Task.objects.commit(owner=ANN, deletes=[dead])
    assert groups() == "join"


def test_what_is_empty_is_passed_over():
    whole = make([Plan()], ["a", Plan(), Plan(then=Plan(then=Plan((NewTask(group="b"),))))], [], ["c"])
    assert groups() == "a b"
    end("a", "b", "c")
    assert told(whole).state == "succeeded"
    assert told(make([], [Plan()])).state == "succeeded"
    api = Api(Scope.WORK)
    body = {"clientid": 1, "batches": [{"then": {"batches": [{"adds": []}], "then": [{"group": "late"}]}}]}
    assert api.post("/batches", body)[0] == 200
    assert groups() == "late"


def test_the_whole_is_completed_and_goes_on():
    whole = make(["a"], ["b", "b"], ["c"])
    end("a", "b")
    fail("b")
    assert completed(whole).state == "open"
    end("alarm", "c")
    assert (groups(), told(whole).state, told(whole).failed) == ("dead", "succeeded", 1)


def test_only_what_has_failed_within_the_whole_is_completed():
    whole = make([steps(["a"], ["b"]), "c"], ["d"])
    fail("a")
    assert completed(whole).state == "open"
    end("alarm", "b")
    assert (groups(), told(whole).failed_ends) == ("c dead", False)
    fail("c")
    assert told(whole).is_stuck  # What fails elsewhere is another failure.
    assert completed(whole).state == "open"
    end("d")
    assert (told(whole).state, told(whole).failed) == ("succeeded", 2)


@pytest.mark.parametrize("step", [0, 1])
def test_the_whole_is_deleted_and_opened_again(step):
    whole = make(["a"], [steps(["b"], ["c"])], ["d"])
    end(*["a"][:step])
    operation = delete_batch(whole, OLAF)
    assert operation
    assert (operation.done, groups(), told(whole).state) == (1, "", "deleted")
    assert not Batch.objects.still_open().exists()
    undone = undo(operation, OLAF)
    assert (undone.done, told(whole).state, told(whole).open) == (1, "open", 1)
    end(*["a", "b", "c", "d"][step:])
    assert (groups(), told(whole).state) == ("", "succeeded")


def test_a_step_that_ends_while_the_whole_is_deleted_adds_nothing():
    whole = make([steps(["a"], ["b"])], ["c"])
    Batch.objects.filter(pk=whole).update(refuses=1)  # Before those within it are found.
    end("a")
    assert (groups(), told(whole).state) == ("", "deleted")
    assert not Batch.objects.still_open().exists()


def test_the_search_for_a_batch_finds_what_is_within():
    whole = make([steps(["a"], ["b"]), "c"], ["d"])
    make(["a"])
    assert Task.objects.get_queryset().in_batch(whole).count() == 2
    assert Api(Scope.OPERATE).post("/bulk/preview", {"verb": "purge", "q": f"batch:{whole}"})[1]["count"] == 2


def test_a_problem_within_is_shown_on_the_whole_and_released_there(settings):
    whole = make(["a"], ["b"], ["c"])
    settings.TASKSTORE_MAX_GROUPS = 0
    end("a")
    assert (told(whole).state, "TASKSTORE_MAX_GROUPS" in told(whole).problem) == ("held", True)
    settings.TASKSTORE_MAX_GROUPS = 100
    new_groups.memories.clear()
    assert released(whole).state == "open"
    assert groups() == "b"


def test_what_is_wrong_within_is_named():
    api = Api(Scope.WORK, groups=("a",))
    for batches, path in (
        ([{"adds": [{"group": ""}]}], "batches[0].adds[0].group"),
        ([{"adds": [{"group": "a"}]}, {"adds": [{"group": "a", "priority": 500}]}], "batches[1].adds[0].priority"),
        ([{"adds": [{"group": "a"}], "then": [{"group": "a", "timespec": "x"}]}], "batches[0].then[0].timespec"),
    ):
        status, answer = api.post("/batches", {"clientid": 1, "batches": batches})
        assert (status, list(answer["errors"])) == (400, [path])
    mine, others = [{"group": "a"}], {"adds": [{"group": "b"}]}
    for within in (
        {"batches": [others]},
        {"batches": [{"adds": mine, "then": others}]},
        {"batches": [{"adds": mine, "batches": [{"adds": mine}, {"adds": mine, "steps": [mine, others]}]}]},
        {"steps": [mine, others]},
        {"steps": [{"adds": mine, "batches": [others]}]},
        {"then": {"adds": mine, "batches": [{"adds": mine, "on_failure": others}]}},
    ):
        status, answer = api.post("/batches", {"clientid": 1, **within})
        assert (status, "b" in answer["detail"]) == (403, True)
    assert not Batch.objects.exists()


def test_groups_within_are_counted(settings):
    settings.TASKSTORE_MAX_GROUPS = 1
    status, answer = Api(Scope.WORK).post(
        "/batches", {"clientid": 1, "batches": [{"adds": [{"group": "a"}], "then": [{"group": "b"}]}]}
    )
    assert (status, list(answer["errors"])) == (413, ["batches[0]"])


def test_a_part_that_is_opened_again_after_its_whole_has_closed_goes_on_alone():
    whole = make([steps(["a"], ["b"])], ["c"])
    operation = delete_batch(whole + 1, OLAF)
    assert operation
    assert (told(whole).state, told(whole).failed_children) == ("failed", 1)
    undo(operation, OLAF)
    assert (told(whole).state, told(whole).children, told(whole + 1).state) == ("failed", 0, "open")
    end("a", "b")
    assert (told(whole).state, told(whole).children, told(whole + 1).state) == ("failed", 0, "succeeded")


def test_a_batch_without_tasks_is_opened_again():
    whole = Task.objects.create_batch(owner=ANN, then=NewTask(group="end"), hold=True)[0].id
    operation = delete_batch(whole, OLAF)
    assert operation
    assert (operation.done, told(whole).state, told(whole).planned) == (0, "deleted", 0)
    undo(operation, OLAF)
    assert (told(whole).state, told(whole).planned) == ("held", 1)
    with pytest.raises(InvalidInput, match="already undone"):
        undo(operation, OLAF)
    Task.objects.change_batch(whole, Step.RELEASE)
    assert groups() == "end"


def test_a_key_before_steps_is_refused():
    asked = {"clientid": 1, "adds": [{"group": "a"}, {"group": "a", "unique": "k"}], "steps": [[{"group": "b"}]]}
    status, answer = Api(Scope.WORK).post("/batches", asked)
    assert (status, list(answer["errors"])) == (400, ["adds[1].unique"])


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ({"steps": [[5]]}, "steps[0][0]"),
        ({"then": [[]]}, "then[0]"),
        ({"then": {"then": [{"group": "a"}, {"group": ""}]}}, "then[1].group"),  # It adds nothing itself.
        ({"steps": [[{"group": "a"}], [{"group": ""}]]}, "steps[1][0].group"),
        ({"steps": [{"adds": [{"group": "a"}], "steps": [[{"group": ""}]]}]}, "steps[0].steps[0][0].group"),
        ({"batches": [{"adds": [{"group": ""}]}]}, "batches[0].adds[0].group"),
        ({"batches": [{"batches": [{"adds": [{"group": ""}]}]}]}, "batches[0].batches[0].adds[0].group"),
    ],
)
def test_an_error_names_what_was_sent(parts, path):
    status, answer = Api(Scope.WORK).post("/batches", {"clientid": 1, **parts})
    assert (status, list(answer["errors"])) == (400, [path])


@pytest.mark.parametrize("depth", [101, 300, 600, 5_000])
def test_what_nests_too_deep_is_refused(depth):
    plan = "[]"
    for _ in range(depth):
        plan = '{"adds": [{"group": "a"}], "steps": [' + plan + "]}"
    status, answer = Api(Scope.WORK).send("/batches", ('{"clientid": 1, "then": ' + plan + "}").encode())
    assert (status, "nest" in answer["detail"]) == (400, True)


def test_whoever_does_not_see_all_of_a_batch_can_not_delete_it():
    whole = make(["a"])
    Task.objects.create_batch(owner=ANN, adds=[NewTask(group="secret")], parent=whole)
    with pytest.raises(Forbidden, match="a batch within it has groups that you have no access to"):
        delete_batch(whole, Actor("olaf", GroupScope(("a", "alarm"))))
    assert told(whole).state == "open"
