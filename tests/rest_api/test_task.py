import pytest

from tasks_app.models import EndedTask, Scope

from .api import BOB, Api


def test_it_answers_with_the_task(api):
    task = api.add(data="1")
    assert api.get(f"/task/{task['id']}") == (200, task)


def test_an_id_that_was_claimed_names_its_successor(api):
    old = api.add()["id"]
    [new] = api.claimed()
    assert api.get(f"/task/{old}") == (404, {"detail": f"task {old} was claimed: its successor is {new['id']}"})


def test_an_id_that_was_deleted_says_so(api):
    task = api.add()["id"]
    api.committed(deletes=[task])
    assert api.get(f"/task/{task}") == (404, {"detail": f"task {task} was deleted"})


@pytest.mark.parametrize("unknown", ["0", "-5", "9223372036854775807"])
def test_an_id_that_never_was_is_not_there(api, unknown):
    assert api.get(f"/task/{unknown}") == (404, {"detail": f"Task {unknown} does not exist."})


def test_an_id_in_a_foreign_group_is_as_if_it_never_was(api):
    there, gone, forgotten = (api.add("reports")["id"] for _ in range(3))
    api.committed(clientid=BOB, deletes=[gone, forgotten])
    EndedTask.objects.filter(id=forgotten).delete()
    reader = Api(Scope.READ, ("mail",))
    for foreign in (there, gone, forgotten):
        assert reader.get(f"/task/{foreign}") == (404, {"detail": unknown(foreign, PRUNED)})


PRUNED = "history is pruned after 7 days"
REDUCED = "history keeps only how tasks ended, and is pruned after 7 days"


def unknown(task_id, history):
    return f"Task {task_id} does not exist: {history}, and the task may have another id now."


@pytest.mark.parametrize(("kept", "why"), [("finished", REDUCED), ("off", "history is switched off")])
def test_an_id_that_is_not_known_any_more_says_why(api, settings, kept, why):
    settings.TASKSTORE_HISTORY = kept
    api.add()
    [between] = api.claimed(duration=0)
    api.claimed()
    assert api.get(f"/task/{between['id']}") == (404, {"detail": unknown(between["id"], why)})


# ----


@pytest.fixture(params=["path", "body"])
def found(request):
    """Both ways to ask for the tasks of some ids."""

    def by_path(api, ids):
        return api.get(f"/tasks/{','.join(map(str, ids))}")

    def by_body(api, ids):
        return api.post("/tasks", {"ids": ids})

    return by_path if request.param == "path" else by_body


def test_tasks_come_in_the_order_asked_null_for_what_does_not_exist(api, found):
    one, two = api.add(), api.add("reports")
    assert found(api, [two["id"], 0, one["id"], two["id"], -1]) == (200, [two, None, one, two, None])


def test_a_wrong_id_is_named_by_its_place(api, found):
    status, answer = found(api, [1, "x", 2**63])
    assert (status, next(iter(answer["errors"]))) == (400, "ids[1]")


def test_ids_in_a_foreign_group_are_null(api, found):
    foreign, own = api.add("reports"), api.add("mail")
    assert found(Api(Scope.READ, ("mail",)), [foreign["id"], own["id"]]) == (200, [None, own])


def test_too_many_name_the_limit(api, found, settings):
    settings.TASKSTORE_MAX_CHANGES = 5
    assert found(api, [1] * 6) == (
        413,
        {"detail": "ids: must have at most 5 ids, not 6", "errors": {"ids": ["must have at most 5 ids, not 6"]}},
    )
