"""Searching over the API: the same words as in the console's box."""

from urllib.parse import quote

import pytest

from tasks_app.models import Scope

from .api import Api

pytestmark = pytest.mark.django_db


def search(api, q="", **asked):
    fields = "".join(f"&{name}={value}" for name, value in asked.items())
    return api.get(f"/search?q={quote(q)}{fields}")


def found(api, q="", **asked):
    status, answer = search(api, q, **asked)
    assert status == 200
    return answer


def test_it_answers_with_whole_tasks(api):
    api.add(data="other")
    task = api.add(data='{"user": 42}', labels={"tier": "gold"})
    answer = found(api, "group:mail data.user:42 label.tier:gold label:tier")
    assert answer["tasks"] == [task]
    assert (answer["after"], answer["complete"]) == (None, True)
    assert answer["at"] >= task["created"]


def test_it_goes_on_where_a_page_ended(api):
    ids = [api.add()["id"] for _ in range(5)]
    first = found(api, "state:ready", limit=3)
    second = found(api, "state:ready", limit=3, after=first["after"])
    assert [task["id"] for task in first["tasks"] + second["tasks"]] == ids[::-1]
    assert second["after"] is None


def test_a_token_finds_tasks_of_its_groups_only(api):
    for group in ("pay", "payroll", "mail"):
        api.add(group)
    for_pay = Api(Scope.READ, ("pay",))
    assert [task["group"] for task in found(for_pay)["tasks"]] == ["pay"]
    assert found(for_pay, "group:mail")["tasks"] == []


@pytest.mark.parametrize(
    ("asked", "field", "told"),
    [
        ("q=state:redy", "q", "state:redy: must be one of ready, claimed, expired"),
        ("q=timeout", "q", "timeout: specify where to search"),
        ("q=error:%22a", "q", "a quotation mark is not closed"),
        ("limit=0", "limit", "must be between 1 and 200"),
        ("limit=201", "limit", "must be between 1 and 200"),
        ("limit=x", "limit", 'must be an integer between 1 and 200, not "x"'),
        ("after=x", "after", "must be a position in the list"),
        ("query=x", "query", "is not a known parameter; use one of q, after, limit"),
        ("q=1&q=2", "query", "must give each parameter only once: q"),
        ("q=%ff", "query", "must be percent-encoded UTF-8"),
    ],
)
def test_a_mistake_is_named(api, asked, field, told):
    status, answer = api.get(f"/search?{asked}")
    assert status == 400
    assert answer["errors"][field][0].startswith(told)
