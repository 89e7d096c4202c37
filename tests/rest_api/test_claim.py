import pytest

from tasks_app.models import Scope, Task

from .api import ANN, BOB, Api


def test_a_claim_answers_with_the_leased_successor(api):
    old = api.add(data="1", labels={"to": "Bob"})
    before = Task.objects.now_ms()
    [new] = api.claimed(owner=BOB, duration=5_000)
    assert new == old | {"id": new["id"], "ownerid": BOB, "claims": 1, "timespec": new["timespec"]}
    assert before + 5_000 <= new["timespec"] <= Task.objects.now_ms() + 5_000


def test_a_lease_lasts_a_minute_unless_said_otherwise(api):
    api.add()
    before = Task.objects.now_ms()
    [task] = api.claimed()
    assert before + 60_000 <= task["timespec"] <= Task.objects.now_ms() + 60_000


def test_nothing_available_is_an_answer_without_tasks(api):
    api.add(timespec=-60_000)
    for group in ("mail", "nowhere"):
        assert api.post("/claim", {"clientid": ANN, "group": group}) == (200, {"tasks": [], "error": None})


def test_a_negative_duration_is_none(api):
    api.add()
    [task] = api.claimed(duration=-(2**63))
    assert task["timespec"] <= Task.objects.now_ms()


def test_missing_depends_refuse_also_when_there_is_nothing_to_claim(api):
    status, answer = api.post("/claim", {"clientid": ANN, "group": "nowhere", "depends": [0]})
    assert (status, answer["tasks"], answer["error"]["depends"]) == (200, [], [0])


def test_several_at_once_the_oldest_first(api):
    ids = [api.add(data=str(number), timespec=number)["id"] for number in (3, 1, 2)]
    assert [task["origin"] for task in api.claimed(limit=2, order="oldest")] == [ids[1], ids[2]]
    assert [task["origin"] for task in api.claimed(limit=1_000)] == [ids[0]]


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


def test_a_dependency_in_a_foreign_group_is_not_there(api):
    foreign = api.add("reports")["id"]
    api.add("mail")
    _, answer = Api(groups=("mail",)).post("/claim", {"clientid": ANN, "group": "mail", "depends": [foreign]})
    assert answer["error"]["depends"] == [foreign]


@pytest.mark.parametrize("groups", [{}, {"groups": []}])
def test_a_claim_without_a_group_is_told_of_both_fields(api, groups):
    status, answer = api.post("/claim", {"clientid": 1, **groups})
    assert (status, answer["errors"]) == (400, {"group": ["is required, unless groups names at least one group"]})
