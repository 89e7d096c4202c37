"""Sign-in, the one-time password, sign-out, theme."""

import logging
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from tasks_app.access import request_limits
from tasks_app.access.people import make_first_admin
from tasks_app.access.policy import Action, may
from tasks_app.models import AuditEntry

from .conftest import PASSWORD

pytestmark = [pytest.mark.once, pytest.mark.django_db, pytest.mark.usefixtures("quick_hashes")]

OWN = "a password of my own"


@pytest.fixture
def ada(db) -> User:
    return User.objects.create_superuser("ada", password=PASSWORD)


@pytest.fixture
def first_admin(client: Client) -> Client:
    sign_in(client, "admin", make_first_admin())
    return client


def sign_in(client, name, password, REMOTE_ADDR="127.0.0.1", **more):  # noqa: N803 - as Django's client has it.
    return client.post("/console/login", {"username": name, "password": password, **more}, REMOTE_ADDR=REMOTE_ADDR)


def test_it_names_the_themes_to_somebody_who_asks_for_another(client, db):
    answer = client.post("/console/theme", {"theme": "pink"})
    assert (answer.status_code, "must be one of" in answer.content.decode()) == (400, True)
    assert client.post("/console/theme", {"theme": "dark"}).cookies["theme"].value == "dark"


def test_it_goes_on_to_the_page_that_was_wanted(client, ada):
    answer = sign_in(client, "ada", PASSWORD, next="/console/group?name=mail")
    assert answer.headers["Location"] == "/console/group?name=mail"


def test_it_does_not_lead_to_another_site(client, ada):
    assert sign_in(client, "ada", PASSWORD, next="https://elsewhere.example/").headers["Location"] == "/console/"


def test_it_locks_a_name_after_ten_wrong_passwords(client, ada):
    for _ in range(10):
        answer = sign_in(client, "ada", "wrong")
    assert answer.status_code == 429
    assert "until 15 min after the last attempt" in answer.content.decode()
    attempt = AccessAttempt.objects.get()
    assert sign_in(client, "ada", PASSWORD).status_code == 429
    # What is tried meanwhile does not prolong it.
    assert AccessAttempt.objects.get().attempt_time == attempt.attempt_time
    assert sign_in(client, "ada", PASSWORD, REMOTE_ADDR="192.0.2.1").status_code == 302
    AccessAttempt.objects.update(attempt_time=attempt.attempt_time - timedelta(minutes=15))
    assert sign_in(client, "ada", PASSWORD).status_code == 302


def test_whoever_runs_the_server_unlocks_a_name(client, ada):
    for _ in range(10):
        sign_in(client, "ada", "wrong")
    call_command("axes_reset_username", "ada", stdout=StringIO())
    assert sign_in(client, "ada", PASSWORD).status_code == 302


def test_it_stops_who_tries_one_password_on_many_names(client, ada, settings, monkeypatch):
    settings.TASKSTORE_SIGN_IN_RATE = 5
    monkeypatch.setattr(request_limits, "time", SimpleNamespace(monotonic=lambda: 1_000.0))
    for number in range(5):
        assert sign_in(client, f"user{number}", "wrong").status_code == 200
    answer = sign_in(client, "ada", PASSWORD)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "12")
    assert "Try again in 12 s" in answer.content.decode()
    assert sign_in(client, "ada", PASSWORD, REMOTE_ADDR="192.0.2.1").status_code == 302


def test_it_makes_one_first_admin_with_a_password_nobody_can_guess(db):
    password = make_first_admin() or ""
    assert len(set(password)) > 5
    assert User.objects.get().check_password(password)
    assert make_first_admin() is None


@pytest.mark.parametrize("path", ["/console/", "/console/group?name=mail", "/console/task/1", "/console/add"])
def test_it_opens_nothing_with_a_one_time_password(first_admin, path):
    assert first_admin.get(path).headers["Location"] == "/console/password"


@pytest.mark.parametrize("password", ["short", "12345678", "password", "aaaaaaaaaaaa", "AbAbAbabABab"])
def test_it_refuses_a_weak_password(first_admin, password):
    answer = first_admin.post("/console/password", {"new_password1": password, "new_password2": password})
    assert answer.status_code == 422
    assert 'class="field-error"' in answer.content.decode()
    assert not may(User.objects.get(), Action.SEE)


def test_the_first_admin_chooses_a_password_and_may_enter_the_admin(first_admin):
    assert first_admin.get("/admin/").status_code == 302
    chosen = {"new_password1": "correct horse battery", "new_password2": "correct horse battery"}
    assert first_admin.post("/console/password", chosen).status_code == 302
    assert first_admin.get("/admin/").status_code == 200


def test_it_refuses_the_one_time_password_as_ones_own(client):
    password = make_first_admin()
    sign_in(client, "admin", password)
    answer = client.post("/console/password", {"new_password1": password, "new_password2": password})
    assert "Choose a password other than the one-time password" in answer.content.decode()
    assert not may(User.objects.get(), Action.SEE)


def test_it_asks_for_the_present_password_before_it_takes_another(client, ada):
    sign_in(client, "ada", PASSWORD)
    answer = client.post("/console/password", {"old_password": "wrong", "new_password1": OWN, "new_password2": OWN})
    assert answer.status_code == 422
    assert User.objects.get().check_password(PASSWORD)


def test_it_ends_the_sessions_of_other_browsers_with_the_old_password(client, ada):
    sign_in(client, "ada", PASSWORD)
    elsewhere = Client()
    sign_in(elsewhere, "ada", PASSWORD)
    client.post("/console/password", {"old_password": PASSWORD, "new_password1": OWN, "new_password2": OWN})
    assert client.get("/console/").status_code == 200
    assert elsewhere.get("/console/").status_code == 302


@pytest.fixture
def logged(caplog):
    """What the log says of sign-ins."""
    logger = logging.getLogger("tasks_app.console.sign_in")
    logger.addHandler(caplog.handler)
    yield lambda: [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    logger.removeHandler(caplog.handler)


def audited() -> list[tuple[str, str, str]]:
    return list(AuditEntry.objects.order_by("id").values_list("actor", "action", "selection"))


def test_sign_in_and_sign_out_are_in_the_audit_and_in_the_log(client, ada, logged):
    sign_in(client, "ada", PASSWORD, REMOTE_ADDR="192.0.2.1")
    client.post("/console/logout", REMOTE_ADDR="192.0.2.2")
    assert audited() == [("ada", "sign in", "from 192.0.2.1"), ("ada", "sign out", "from 192.0.2.2")]
    assert logged() == ["INFO sign in: ada from 192.0.2.1", "INFO sign out: ada from 192.0.2.2"]


def test_failed_sign_ins_and_the_lock_out_are_in_the_audit_and_in_the_log(client, ada, logged):
    for _ in range(12):
        sign_in(client, "ada", "a wrong secret", REMOTE_ADDR="192.0.2.1")
    failed = ("ada", "failed sign-in", "from 192.0.2.1")
    assert audited() == [failed] * 10 + [("ada", "lock out", "from 192.0.2.1")]
    assert logged()[-2:] == ["WARNING failed sign-in: ada from 192.0.2.1", "WARNING lock out: ada from 192.0.2.1"]
    assert "a wrong secret" not in str(list(AuditEntry.objects.values())) + str(logged())


@pytest.mark.parametrize(
    ("typed", "actor"),
    [
        ("mallory", "unknown:mallory"),
        ("token:backup", "unknown:token:backup"),
        ("a\nb\x1b[31m", "unknown:a\\nb\\x1b[31m"),
        ("x" * 150, f"unknown:{'x' * 40}…"),
        ("<script>", "unknown:<script>"),
    ],
)
def test_a_name_that_nobody_has_is_told_apart_and_cut_short(client, ada, logged, typed, actor):
    sign_in(client, typed, "wrong", REMOTE_ADDR="192.0.2.1")
    assert audited() == [(actor, "failed sign-in", "from 192.0.2.1")]
    assert logged() == [f"WARNING failed sign-in: {actor} from 192.0.2.1"]


def test_failed_sign_ins_are_found_in_the_audit(client, ada):
    sign_in(client, "mallory", "wrong")
    sign_in(client, "ada", PASSWORD)
    page = client.get("/console/audit?action=failed+sign-in").content.decode()
    assert "unknown:mallory" in page
    assert '<bdi class="group-name">ada</bdi>' not in page
    assert "unknown:mallory" in client.get("/console/audit?by=unknown:mallory").content.decode()
