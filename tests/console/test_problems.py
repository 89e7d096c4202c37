"""What the console says when something goes wrong."""

import json
import re
from html import unescape
from urllib.parse import urlencode

import pytest
from django.contrib import auth
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import InternalError, OperationalError, ProgrammingError
from django.test import Client

from tasks_app import bulk
from tasks_app.console import groups, pages
from tasks_app.console.pages import problem
from tasks_app.models import AuditEntry
from taskstore.errors import CommitUnknown, StoreBusy, StoreUnavailable
from taskstore_project import error_pages

from ..people import make_user, signed_in
from .store import add

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("error", [OperationalError("no connection to 10.0.0.7"), StoreUnavailable("no database")])
def test_it_says_that_the_database_does_not_answer(operator, monkeypatch, error):
    monkeypatch.setattr(groups, "stats_of", raising(error))
    answer = operator.get("/console/group?name=mail")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "5"
    page = answer.content.decode()
    assert "The database is not responding" in page
    assert "10.0.0.7" not in page
    # The browser asks again by itself, without a script.
    assert answer.headers["Refresh"] == "5"
    assert "<script" not in page


OUTAGES = [
    OperationalError("no connection to 10.0.0.7"),
    InternalError("received 2 results from command 'COMMIT'"),
    ProgrammingError("received 2 results from command 'COMMIT'"),
]


@pytest.mark.parametrize("error", OUTAGES, ids=lambda error: type(error).__name__)
def test_a_part_of_a_page_tries_again_by_itself(operator, monkeypatch, error):
    monkeypatch.setattr(groups, "stats_of", raising(error))
    answer = operator.get("/console/group?name=mail&limit=3", headers={"HX-Request-Type": "partial"})
    assert answer.status_code == 503
    part = answer.content.decode()
    assert "<html" not in part
    assert 'data-hx-get="/console/group?name=mail&amp;limit=3" data-hx-trigger="load delay:5s"' in part
    assert "Refresh" not in answer.headers


@pytest.mark.parametrize("path", ["/console/", "/console/login", "/admin/", "/admin/tasks_app/task/"])
@pytest.mark.parametrize("error", OUTAGES, ids=lambda error: type(error).__name__)
def test_every_page_says_so_also_where_the_visitor_is_looked_up(operator, monkeypatch, caplog, path, error):
    """Middleware and Django's own views ask the database as well."""
    operator.raise_request_exception = False
    monkeypatch.setattr(auth, "get_user", raising(error))
    monkeypatch.setattr("django.contrib.auth.middleware.auth.get_user", raising(error))
    for accept, word in (
        ("text/html", "The database is not responding"),
        ("application/json", '"code": "unavailable"'),
    ):
        answer = operator.get(path, headers={"Accept": accept})
        if path.startswith("/console/") and answer.status_code == 503 and accept != "text/html":
            word = ""  # Pages of the console are always pages.
        assert (answer.status_code, word in answer.content.decode()) == (503, True)
        assert "Retry-After" in answer.headers
    assert caplog.messages == []


def test_a_change_is_not_repeated_by_itself(operator, monkeypatch):
    [task] = add()
    monkeypatch.setattr(bulk, "start", raising(StoreUnavailable("no database")))
    form = {"name": "mail", "id": task.id, "expected": 1, "bound": task.id}
    answer = operator.post("/console/purge", form)
    assert answer.status_code == 503
    assert "Refresh" not in answer.headers
    page = answer.content.decode()
    assert "Nothing was changed" in page
    # Once more with one press of a button, and nothing is typed again.
    assert '<form class="send-again" method="post" action="/console/purge">' in page
    assert f'<input type="hidden" name="bound" value="{task.id}">' in page
    monkeypatch.setattr(bulk, "start", raising(OperationalError("lost")))
    assert "may or may not have been made" in operator.post("/console/purge", form).content.decode()


def test_the_page_of_an_outage_needs_no_database(django_assert_num_queries, rf):
    request = rf.get("/console/", headers={"Accept": "text/html"})
    with django_assert_num_queries(0):
        assert problem(request, OperationalError("lost")).status_code == 503


@pytest.mark.parametrize(
    ("error", "words"), [(StoreBusy("locked"), "The store is busy"), (CommitUnknown("lost"), "The outcome is unknown")]
)
@pytest.mark.parametrize("kind", ["partial", "full"])
def test_it_says_how_a_change_ended(operator, monkeypatch, error, words, kind):
    [task] = add()
    monkeypatch.setattr(bulk, "start", raising(error))
    form = {"name": "mail", "id": task.id, "expected": 1, "bound": task.id}
    answer = operator.post("/console/purge", form, headers={"HX-Request-Type": kind})
    assert answer.status_code == 503
    assert words in answer.content.decode()
    assert ("<html" in answer.content.decode()) is (kind == "full")
    assert not AuditEntry.objects.exists()


def test_somebody_without_a_role_reads_whom_to_ask(client):
    make_user("ada", "admin"), make_user("adam", "admin")
    page = signed_in(make_user("bob")).get("/console/")
    assert page.status_code == 403
    html = page.content.decode()
    assert "You have no role yet" in html
    assert "An administrator can give you one that does: ada, adam." in html
    assert 'data-live-status=""' in html  # No page asks again and again.
    assert (
        "Your role does not allow this" in signed_in(make_user("vera", "viewer")).get("/console/audit").content.decode()
    )


@pytest.mark.parametrize("to", ["https://elsewhere.example/", "//elsewhere.example", "javascript:alert(1)", "x", ""])
def test_what_is_kept_over_a_sign_in_is_sent_to_this_site_only(rf, to):
    kept = json.dumps({"to": to, "fields": [["a", "b"]]})
    assert pages.sent_again(rf.post("/console/login"), kept) is None


@pytest.mark.parametrize(
    "kept",
    ["[" * 200_000, '{"to":"/x","fields":[[' + "[" * 50_000, '{"to":"/x","fields":[["a","\\ud800"]]}',
     '{"to":"/\\ud800","fields":[]}', '{"to":"/x","fields":[["a",' + "[" * 50_000 + "]" * 50_000 + "]]}"],
)  # fmt: skip
def test_rubbish_that_is_kept_over_a_sign_in_is_dropped(rf, kept):
    assert pages.sent_again(rf.post("/console/login"), kept) is None


def test_what_an_open_page_asks_again_and_again_does_not_take_its_place_without_a_session(client, db):
    """The sign-in would be swapped in, of which it selects nothing."""
    answer = client.get("/console/jobs", headers={"HX-Request": "true", "HX-Request-Type": "full"})
    assert (answer.status_code, answer.content) == (401, b"")


def test_a_text_that_a_form_may_send_may_also_be_kept_over_a_sign_in(client, rf):
    """As JSON within a form that is percent-encoded it would be more than twice as long."""
    text = 'é"' * 100_000
    html = client.post("/console/add", {"group": "mail", "text": text}).content.decode()
    [(form, kept)] = re.findall(r'<form class="fields"([^>]*)>.*name="kept" value="([^"]*)"', html, re.DOTALL)
    assert 'enctype="multipart/form-data"' in form
    assert len(unescape(kept).encode()) < len(urlencode({"text": text}))
    assert pages.sent_again(rf.post("/console/login"), unescape(kept)) == {
        "to": "/console/add",
        "fields": [("group", "mail"), ("text", text)],
    }


def test_a_file_is_chosen_again_after_the_sign_in(client):
    html = client.post("/console/import", {"group": "mail", "file": SimpleUploadedFile("a.csv", b"x")}).content.decode()
    assert "choose the file again" in html
    assert 'name="next" value="/console/import"' in html
    assert 'name="kept"' not in html


def test_of_what_is_kept_over_a_sign_in_no_secret_is_shown(client, db):
    form = {"username": "kim", "new_password1": "secret", "csrfmiddlewaretoken": "hidden"}
    html = client.post("/console/settings/people/add", form).content.decode()
    assert "kim" in html
    assert "secret" not in html
    assert 'hidden"]' not in html


@pytest.mark.parametrize("sign", ["\u202e", "\u2066", "\x01", "\x7f", "\u200b"])
def test_what_nobody_sees_is_shown_in_names_and_kept_in_forms(operator, sign):
    name = f"a{sign}b"
    add(name)
    html = operator.get("/console/group", {"name": name}).content.decode()
    shown = "␁" if sign == "\x01" else f"[U+{ord(sign):04X}]"
    assert f"a{shown}b" in html
    texts = re.sub(r"<[^>]*>", "", html)
    assert sign not in texts
    asked = operator.get("/console/confirm", {"verb": "purge", "name": name, "all": 1}).content.decode()
    assert f'name="name" value="{name}"' in asked


def raising(error):
    def fail(*args, **kwargs):
        raise error

    return fail


@pytest.mark.parametrize("status", error_pages.TITLES)
def test_it_has_a_page_for_errors_that_needs_no_database(status, rf, django_assert_num_queries):
    request = rf.get("/nowhere", headers={"Accept": "text/html"})
    with django_assert_num_queries(0):
        page = error_pages.answer(request, status, "<b>why</b>", request_id="1f2e").content.decode()
    assert "Go to the overview" in page
    assert "<b>why</b>" not in page
    assert ("<code>1f2e</code>" in page) is (status == 500)


def test_a_form_without_its_token_says_what_to_do():
    client = Client(enforce_csrf_checks=True)
    page = client.post("/console/theme", {"theme": "dark"})
    assert (page.status_code, "reload the page and try again" in page.content.decode()) == (403, True)
