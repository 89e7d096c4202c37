"""What every answer tells a browser: a policy without exceptions, no frames, no guesses at types, nothing kept."""

import json
import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from lab.testing import PROJECT
from lab.testing.environment import clean_environment
from tasks_app.console.urls import urlpatterns
from tasks_app.models import Scope, Task
from taskstore.types.tasks import NewTask

from ..admin import test_rights as admin
from ..people import make_user, signed_in
from ..rest_api import test_tokens as api
from ..rest_api.api import Api

pytestmark = [pytest.mark.once, pytest.mark.django_db]

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
STRICT = {
    "default-src": ["'self'"],
    "img-src": ["'self'", "data:"],
    "object-src": ["'none'"],
    "base-uri": ["'none'"],
    "form-action": ["'self'"],
    "frame-ancestors": ["'none'"],
}


@pytest.fixture
def superuser() -> Client:
    return signed_in(User.objects.create_superuser("ada"))


@pytest.fixture
def task() -> Task:
    return Task.objects.commit(owner=1, adds=[NewTask(group="mail", data=b"1")])[0]


def policy_of(answer) -> dict[str, list[str]]:
    directives = [each.split() for each in answer.headers["Content-Security-Policy"].split(";")]
    return {name: values for name, *values in directives}


def assert_strict(answer):
    """As a browser would be told by every page; test_rights.py of the console has its pages."""
    assert policy_of(answer) == STRICT
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "same-origin"


def assert_nothing_inline(answer):
    page = answer.getvalue().decode()
    assert "<style" not in page
    assert " style=" not in page
    assert [script for script in page.split("<script")[1:] if "src=" not in script.split(">")[0]] == []


@pytest.mark.parametrize("page", [*admin.PAGES, "login/"])
def test_pages_of_the_admin(superuser, task, page):
    answer = superuser.get(admin.path_of(page, {"task": task.id, "user": User.objects.get().pk}), headers=BROWSER)
    assert_strict(answer)
    assert_nothing_inline(answer)
    # What anybody may see may be kept: where pages are, and a catalogue of words.
    if answer.status_code == 200 and page != "jsi18n/":
        assert "no-store" in answer.headers["Cache-Control"]


def test_the_page_of_the_api(client):
    answer = client.get("/schema/ui")
    assert_strict(answer)
    assert_nothing_inline(answer)


@pytest.mark.parametrize(("method", "path"), api.GUARDED.values(), ids=api.GUARDED)
def test_answers_of_the_api(task, method, path):
    for client in (Api(Scope.OPERATE).http, Client()):
        answer = client.generic(method, path, headers=BROWSER)
        assert_strict(answer)
        assert "no-store" in answer.headers["Cache-Control"]


@pytest.fixture
def failing(monkeypatch) -> Client:
    """Of a site on which signing in goes wrong in a way that nobody expected."""
    [pattern] = [each for each in urlpatterns if each.name == "login"]

    def fail(request):
        raise ZeroDivisionError("SELECT of /secret/path")

    monkeypatch.setattr(pattern, "callback", fail)
    return Client(raise_request_exception=False)


@pytest.mark.parametrize(
    ("status", "path", "headers"),
    [
        (400, "/console/login", {"host": "elsewhere.example"}),
        (403, "/console/settings", {}),
        (404, "/nothing", {}),
        (404, "/console/nothing", {}),
        (500, "/console/login", {}),
    ],
)
@pytest.mark.parametrize("accept", [BROWSER, {}])
def test_pages_of_errors(failing, status, path, headers, accept):
    if status == 403:
        failing = signed_in(make_user("vera", "viewer"))
    answer = failing.get(path, headers={**headers, **accept})
    assert answer.status_code == status
    assert_strict(answer)
    assert_nothing_inline(answer)


def test_an_error_page_tells_a_number_that_the_log_has_and_nothing_else(failing, caplog):
    said = failing.get("/console/login").json()
    page = failing.get("/console/login", headers=BROWSER).content.decode()
    assert said.keys() == {"detail", "request_id"}
    assert f"request {said['request_id']} failed: GET /console/login" in caplog.text
    for text in (json.dumps(said), page):
        assert not [word for word in ("SELECT", "/secret/path", "ZeroDivision", "Traceback", ".py") if word in text]
    assert any(record.getMessage().split()[1] in page for record in caplog.records)


def test_a_form_without_its_token_is_refused_by_a_strict_page(superuser):
    superuser.handler.enforce_csrf_checks = True
    answer = superuser.post("/console/pause", {"name": "mail"}, headers=BROWSER)
    assert answer.status_code == 403
    assert_strict(answer)
    assert_nothing_inline(answer)


@pytest.mark.parametrize(
    ("public_url", "told"),
    [("https://tasks.example.org", "max-age=31536000"), ("http://tasks.example.org", None), ("", None)],
)
def test_behind_tls_a_browser_comes_by_tls_for_a_year(tmp_path, public_url, told):
    code = (
        "import django; django.setup(); from django.test import Client\n"
        "answer = Client().get('/healthz', headers={'host': 'localhost', 'x-forwarded-proto': 'https'})\n"
        "print(answer.status_code, answer.headers.get('Strict-Transport-Security'))"
    )
    environment = {
        **clean_environment(tmp_path / "data"),
        "TASKSTORE_PUBLIC_URL": public_url,
        "DJANGO_SETTINGS_MODULE": os.environ["DJANGO_SETTINGS_MODULE"],
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["200", str(told)]


def test_cookies_are_for_our_pages_and_no_scripts(client):
    User.objects.create_superuser("ada", password="correct horse battery")
    form = client.get("/console/login")
    opened = client.post("/console/login", {"username": "ada", "password": "correct horse battery"})
    for cookie in (form.cookies[settings.CSRF_COOKIE_NAME], opened.cookies[settings.SESSION_COOKIE_NAME]):
        assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")
