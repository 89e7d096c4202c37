from urllib.parse import quote

import pytest

from tasks_app.rest_api import views

from .api import BOB


@pytest.mark.parametrize("owned", ["1", "yes", "true", "TRUE", "Yes"])
def test_owned_adds_those_that_are_not_available(api, owned):
    first, later = api.add(timespec=1_000), api.add(timespec=-60_000)
    assert api.get(f"/group/mail?owned={owned}") == (200, [first, later])


def test_it_lists_those_that_bear_all_of_the_labels(api):
    gold = api.add(labels={"tier": "gold", "region": "eu"}, timespec=1_000)
    tin = api.add(labels={"tier": "tin", "region": "eu", "a:b": ""}, timespec=2_000)
    api.add(), api.add("reports", labels={"tier": "gold"})
    assert api.get("/group/mail?label=tier:gold") == (200, [gold])
    assert api.get("/group/mail?label=tier") == (200, [gold, tin])
    assert api.get("/group/mail?label=tier&label=region:eu&limit=1") == (200, [gold])
    assert api.get("/group?name=mail&label=region:eu&label=tier:tin&owned=yes") == (200, [tin])
    empty = quote('"a:b":""')
    assert api.get(f"/group/mail?label={empty}") == (200, [tin])
    assert api.get("/group/mail?label=tier:gold&label=tier:tin") == (200, [])


@pytest.mark.parametrize(
    "name", ["a/b", "/a", "a//b/", "a b", "100%", "%2F", "ü/ß", "line\nbreak", "q?x=1#y", "\u202ertl"]
)
def test_a_name_holds_any_character(api, name):
    task = api.add(name)
    assert api.get(f"/group/{quote(name)}") == (200, [task])
    assert api.get(f"/group/{quote(name, safe='')}") == (200, [task])
    assert api.get(f"/group?name={quote(name, safe='')}") == (200, [task])


def test_the_query_carries_names_that_a_path_cannot(api):
    task = api.add("..")
    assert api.get("/group?name=..&limit=1&owned=yes") == (200, [task])
    assert api.get("/group?name=") == (200, [])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=-1", "limit"),
        ("limit=1_000", "limit"),
        ("limit=1.0", "limit"),
        ("limit=", "limit"),
        ("limit=٣", "limit"),
        ("limit=9223372036854775808", "limit"),
        ("owned=maybe", "owned"),
        ("owned=", "owned"),
        ("label=", "label"),
        ("label=tier:", "label"),
        ("label=tier&label=:gold", "label"),
        ("page=2", "page"),
        ("limit=1&limit=2", "query"),
        ("owned=%FF", "query"),
    ],
)
def test_a_wrong_parameter_is_named(api, query, field):
    status, answer = api.get(f"/group/mail?{query}")
    assert (status, list(answer["errors"])) == (400, [field])


def test_a_group_larger_than_a_snapshot_comes_in_consecutive_pages(api, monkeypatch):
    monkeypatch.setattr(views, "SNAPSHOT_TASKS", 3)
    # Equal times, so that the pages must be told apart by id too.
    tasks = api.committed(
        clientid=BOB, adds=[{"group": "mail", "data": str(n), "timespec": 1 + n // 4} for n in range(9)]
    )
    assert api.get("/group/mail")[1] == tasks
    for limit in range(1, 11):
        assert api.get(f"/group/mail?limit={limit}")[1] == tasks[:limit]


def test_more_than_fits_in_a_piece_comes_whole(api):
    tasks = api.committed(adds=[{"group": "mail", "data": "ä" * 50_000} for _ in range(40)])
    assert api.get("/group/mail")[1] == tasks


# ----


@pytest.mark.parametrize("path", ["/groups", "/group"])
def test_it_lists_the_groups_that_hold_a_task(api, path):
    for name in ("reports", "mail", "Zeta", "ärger"):
        api.add(name)
    gone = api.add("gone")
    api.committed(deletes=[gone["id"]])
    assert api.get(path) == (200, ["Zeta", "mail", "reports", "ärger"])
