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
