import json
from typing import Any

from django.db import OperationalError

from tasks_app.core.operations import EVERY_GROUP
from tasks_app.models import Scope
from tasks_app.rest_api.views import in_numbers
from tasks_app.writer import totals

from .api import BOB, Api


def stats(api: Api) -> list[dict[str, Any]]:
    status, answer = api.get("/stats")
    assert status == 200
    return list(answer["groups"])


def test_it_tells_each_group_in_numbers(api):
    for fields in ({}, {}, {"timespec": -60_000}, {"error": "broken"}, {}):
        api.add("mail", **fields)
    api.add("reports", timespec=-60_000)
    api.claimed("mail", owner=BOB)
    [done] = api.claimed("mail", owner=BOB)
    api.claimed("mail", owner=BOB, duration=0, order="oldest")
    api.committed(clientid=BOB, deletes=[done["id"]])
    mail, reports = stats(api)
    assert (mail["group"], reports["group"]) == ("mail", "reports")
    assert (mail["ready"], mail["claimed"], mail["expired"], mail["scheduled"]) == (1, 1, 1, 1)
    assert (mail["in_per_minute"], mail["out_per_minute"], mail["paused"]) == (5, 1, False)
    assert mail["oldest_ready"] >= 0
    assert reports == {
        "group": "reports",
        "ready": 0,
        "claimed": 0,
        "expired": 0,
        "scheduled": 1,
        "failed": 0,
        "oldest_ready": None,
        "in_per_minute": 1,
        "out_per_minute": 0,
        "paused": False,
    }


def test_a_token_sees_its_own_groups_only(api):
    for name in ("pay", "pay/june", "payroll", "mail"):
        api.add(name)
    seen = stats(Api(Scope.READ, ("pay/*", "mail")))
    assert [group["group"] for group in seen] == ["mail", "pay/june"]


def test_who_names_groups_gets_those_of_them_that_the_token_covers(api):
    for name in ("pay", "pay/june", "pay/june/a", "payroll", "mail"):
        api.add(name)
    asked = {
        "group=pay/*": ["pay/june", "pay/june/a"],
        "group=pay*&group=mail": ["mail", "pay", "pay/june", "pay/june/a", "payroll"],
        "group=pay&group=nothing": ["pay"],
        "group=*": ["mail", "pay", "pay/june", "pay/june/a", "payroll"],
    }
    assert {query: groups_told(api, query) for query in asked} == asked
    narrow = Api(Scope.READ, ("pay/june*", "mail"))
    seen = {query: groups_told(narrow, query) for query in ("group=pay/*", "group=pay/june/*", "group=pay", "group=m*")}
    assert [*seen.values()] == [["pay/june", "pay/june/a"], ["pay/june/a"], [], ["mail"]]
    for name in ("st*", "sta*r", "**"):
        api.add(name)
    assert groups_told(api, "group=st**") == ["st*"]
    assert groups_told(api, "group=**") == ["**"]
    assert groups_told(Api(Scope.READ, ("st*",)), "group=st**") == ["st*"]
    for wrong in ("group=%00", "group=" + 300 * "a", "groups=mail"):
        assert api.get(f"/stats?{wrong}")[0] == 400


def groups_told(api: Api, query: str) -> list[str]:
    status, answer = api.get(f"/stats?{query}")
    assert status == 200
    return [group["group"] for group in answer["groups"]]


def test_many_groups_are_answered_in_pieces(api, monkeypatch):
    monkeypatch.setattr(totals, "PAGE_GROUPS", 2)
    names = [f"group-{number}" for number in range(5)]
    for name in names:
        api.add(name)
    totals.fold_here()
    pieces = list(in_numbers(EVERY_GROUP))
    assert len(pieces) == 4  # Two groups, two, one, and the end.
    assert [group["group"] for group in json.loads(b"".join(pieces))["groups"]] == names
    assert [group["group"] for group in stats(api)] == names


def test_a_database_that_is_away_is_an_error_and_no_answer_that_breaks_off(api, monkeypatch):
    def away(*_, **__):
        raise OperationalError("no connection")

    monkeypatch.setattr(totals, "_counted", away)
    assert api.get("/stats")[0] == 503
