import pytest

from tasks_app.models import Scope, Task

from .api import ANN, Api


def test_a_lease_lasts_a_minute_unless_said_otherwise(api):
    api.add()
    before = Task.objects.now_ms()
    [task] = api.claimed()
    assert before + 60_000 <= task["timespec"] <= Task.objects.now_ms() + 60_000


def test_nothing_available_is_an_answer_without_tasks(api):
    api.add(timespec=-60_000)
    for group in ("mail", "nowhere"):
        assert api.post("/claim", {"clientid": ANN, "group": group}) == (200, {"tasks": [], "error": None})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("clientid", None),
        ("group", ""),
        ("limit", 0),
        ("limit", 1_001),
        ("order", "newest"),
        ("duration", 2**63 - 1),
        ("depends", [1.0]),
        ("wait", -1),
        ("wait", 60_001),
        ("groups", ["mail"]),
    ],
)
def test_a_wrong_field_is_named(api, field, value):
    api.add()
    status, answer = api.post("/claim", {"clientid": ANN, "group": "mail", field: value})
    assert status == 400
    assert [path.partition("[")[0] for path in answer["errors"]] == [field]
    assert len(api.get("/group/mail")[1]) == 1


def test_it_is_forbidden_to_a_token_that_may_only_read(db):
    assert Api(Scope.READ).post("/claim", {"clientid": ANN, "group": "mail"})[0] == 403


def test_a_foreign_group_is_forbidden(api):
    api.add("payroll")
    assert Api(groups=("pay/*", "pay")).post("/claim", {"clientid": ANN, "group": "payroll"})[0] == 403
    assert len(api.claimed("payroll")) == 1


@pytest.mark.parametrize("groups", [{}, {"groups": []}])
def test_a_claim_without_a_group_is_told_of_both_fields(api, groups):
    status, answer = api.post("/claim", {"clientid": 1, **groups})
    assert (status, answer["errors"]) == (400, {"group": ["is required, unless groups names at least one group"]})
