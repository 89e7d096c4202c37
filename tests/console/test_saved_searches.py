"""Searches that somebody keeps under a name."""

import pytest

from tasks_app.models import SavedSearch
from tasks_app.reading import saved_searches

from .store import add
from .test_search import suggestions

pytestmark = pytest.mark.django_db

ADDRESS = "/console/search?q=group%3Amail+error%3A%22a+b%22"
Q = 'group:mail error:"a b"'


def save(client, name="Bad mail", q=Q, status=302):
    answer = client.post("/console/search/save", {"name": name, "q": q})
    assert answer.status_code == status
    return answer


def change(client, verb, search, **fields):
    return client.post(f"/console/search/{search.id}/{verb}", fields)


def names():
    return list(SavedSearch.objects.order_by("id").values_list("name", flat=True))


def test_it_is_kept_and_shown_on_every_page(viewer):
    answer = save(viewer, " Bad mail ")
    assert answer.headers["Location"] == ADDRESS
    html = viewer.get(ADDRESS).content.decode()
    assert "Saved as Bad mail." in html
    assert "Saved as <bdi>Bad mail</bdi>" in html
    for path in ("/console/", "/console/search"):
        assert f'<a href="{ADDRESS}"><bdi>Bad mail</bdi></a>' in viewer.get(path).content.decode()


def test_it_is_suggested_by_its_name_and_by_what_it_asks(viewer):
    save(viewer)
    for typed in ("bad", "MAIL err", ""):
        assert suggestions(viewer, typed)[0] == "group:mail error:&quot;a b&quot;"
    assert suggestions(viewer, "state:sch") == ["state:scheduled"]


def test_it_can_be_renamed_and_deleted(viewer):
    save(viewer), save(viewer, "Other")
    bad, other = SavedSearch.objects.order_by("id")
    assert change(viewer, "rename", bad, name="Worse").status_code == 302
    assert "Renamed to Worse." in viewer.get("/console/search").content.decode()
    assert change(viewer, "delete", other).status_code == 302
    assert names() == ["Worse"]


def test_a_name_is_there_once_for_each_person(viewer, operator):
    save(viewer), save(viewer, "Other")
    html = save(viewer, q="group:reports", status=422).content.decode()
    assert "you have another search named Bad mail" in html
    assert 'value="group:reports"' in html
    answer = change(viewer, "rename", SavedSearch.objects.get(name="Other"), name="Bad mail")
    assert answer.status_code == 422
    assert "you have another search named Bad mail" in answer.content.decode()
    save(operator)
    assert names() == ["Bad mail", "Other", "Bad mail"]


@pytest.mark.parametrize(
    ("name", "q", "status", "told"),
    [
        (" ", Q, 422, "Must not be empty"),
        ("x" * 101, Q, 422, "100 characters"),
        ("a\0b", Q, 422, "NUL character"),
        ("Empty", " ", 422, "Must have at least one term"),
        ("Wrong", "state:redy", 400, "state:redy: must be one of ready"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_kept(viewer, name, q, status, told):
    assert told in save(viewer, name, q, status).content.decode()
    assert names() == []


@pytest.mark.parametrize(("name", "told"), [("Bad mail", "another search named"), ("x" * 101, "100 characters")])
def test_who_operates_on_what_was_found_is_told_beside_it(operator, name, told):
    add("mail", count=2)
    save(operator, q="group:mail")
    page = save(operator, name, "group:mail", 422).content.decode()
    assert told in page
    assert "All 2 found" in page
    assert f'value="{name}"' in page


def test_a_person_has_fifty_at_most(viewer, monkeypatch):
    monkeypatch.setattr(saved_searches, "MOST", 2)
    save(viewer, "1"), save(viewer, "2")
    assert "ou already have 2 saved searches, the maximum" in save(viewer, "3", status=422).content.decode()
    assert names() == ["1", "2"]


def test_nobody_sees_or_changes_those_of_others(viewer, operator):
    save(viewer)
    [saved] = SavedSearch.objects.all()
    assert "Bad mail" not in operator.get("/console/search").content.decode()
    assert change(operator, "delete", saved).status_code == 302
    answer = change(operator, "rename", saved, name="Mine")
    assert "Must be one of your saved searches: this one may have been deleted" in answer.content.decode()
    assert names() == ["Bad mail"]
