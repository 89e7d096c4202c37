import pytest

from tasks_app.models import Scope

from .api import Api


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


def test_a_thousand_fit(api, found):
    task = api.add()
    assert found(api, [task["id"]] * 1_000) == (200, [task] * 1_000)


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


def test_no_ids_are_no_tasks(api):
    assert api.post("/tasks", {"ids": []}) == (200, [])


@pytest.mark.parametrize("body", [{}, {"ids": None}, {"ids": 5}, {"ids": "1,2"}])
def test_ids_have_to_be_a_list(api, body):
    status, answer = api.post("/tasks", body)
    assert (status, list(answer["errors"])) == (400, ["ids"])


@pytest.mark.parametrize("path", ["/tasks/", "/tasks/1,2/"])
def test_other_paths_are_not_there(api, path):
    assert api.get(path)[0] == 404


def test_reading_by_body_is_a_post(api):
    assert api.get("/tasks")[0] == 405
    assert api.post("/tasks/1", {})[0] == 405
