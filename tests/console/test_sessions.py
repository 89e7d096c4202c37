"""How long somebody stays signed in."""

import time

import pytest
from django.contrib.auth.models import User
from django.core import signing
from django.test import Client

from tasks_app.access import sessions as ended
from tasks_app.models import AuditEntry, EndedSession
from taskstore_project import sessions

from ..people import make_user, signed_in

pytestmark = [pytest.mark.once, pytest.mark.django_db]

HOUR_S = 3_600
A_PAGE = {"Accept": "text/html,*/*"}


@pytest.fixture
def later(monkeypatch, settings):
    """Puts the clock forward."""
    settings.SESSION_COOKIE_AGE, settings.SESSION_LONGEST_S = 12 * HOUR_S, 7 * 24 * HOUR_S
    now_s = time.time()

    class Clock:
        @staticmethod
        def time() -> float:
            return now_s

    def advance(hours: float) -> None:
        nonlocal now_s
        now_s += hours * HOUR_S

    monkeypatch.setattr(sessions, "time", Clock)
    monkeypatch.setattr(signing, "time", Clock)
    return advance


def is_signed_in(client, **headers) -> bool:
    return bool(client.get("/console/workers", headers=headers).status_code == 200)


@pytest.fixture
def ann(db) -> User:
    return make_user("ann", "viewer")


@pytest.fixture
def ada(db) -> Client:
    """The browser of an administrator."""
    return signed_in(make_user("ada", "admin"))


def copy_of(browser: Client) -> Client:
    """Another browser with the same cookies."""
    other = Client()
    for name, morsel in browser.cookies.items():
        other.cookies[name] = morsel.value
    return other


def test_a_copied_cookie_opens_nothing_after_the_sign_out(ann):
    here, elsewhere = signed_in(ann), signed_in(ann)
    copied = copy_of(here)
    assert is_signed_in(copied)
    here.post("/console/logout")
    assert not is_signed_in(copied)
    assert is_signed_in(elsewhere)


def test_somebody_signs_out_everywhere(ann):
    here, elsewhere, bob = signed_in(ann), signed_in(ann), signed_in(make_user("bob", "viewer"))
    assert is_signed_in(elsewhere)
    assert here.post("/console/logout/everywhere").headers["Location"] == "/console/login"
    assert not is_signed_in(here)
    assert not is_signed_in(elsewhere)
    assert is_signed_in(bob)
    assert is_signed_in(signed_in(ann))
    assert AuditEntry.objects.filter(actor="ann", action="sign out everywhere", selection="user ann").count() == 1


def test_an_administrator_signs_somebody_out_everywhere(ann, ada):
    browser = signed_in(ann)
    assert "Sign ann out everywhere?" in ada.get(
        f"/console/settings/people/{ann.pk}/sign-out"
    ).content.decode().replace('<bdi class="group-name">ann</bdi>', "ann")
    assert is_signed_in(browser)
    ada.post(f"/console/settings/people/{ann.pk}/sign-out")
    assert not is_signed_in(browser)
    assert is_signed_in(ada)
    assert AuditEntry.objects.get(action="sign out everywhere").actor == "ada"


@pytest.fixture
def clock(monkeypatch):
    """The clock by which verdicts grow old."""

    class Clock:
        now_s = time.monotonic()

        @classmethod
        def monotonic(cls) -> float:
            return cls.now_s

    monkeypatch.setattr(ended, "time", Clock)
    return Clock


def test_what_another_server_has_ended_is_over_soon(ann, clock):
    browser = signed_in(ann)
    assert is_signed_in(browser)
    EndedSession.objects.create(id=browser.session["id"], until_ms=2**52)  # As another process does it.
    assert is_signed_in(browser)
    clock.now_s += ended.TRUSTED_S + 0.1
    assert not is_signed_in(browser)


def test_a_session_that_is_over_takes_no_sign_out(ann):
    """Nor does it fill the table of those that were ended."""
    browser = signed_in(ann)
    copied = copy_of(browser)
    browser.post("/console/logout")
    copied.post("/console/logout")
    assert EndedSession.objects.count() == 1


def test_it_ends_some_time_after_the_last_page(viewer, later):
    later(11.9)
    assert is_signed_in(viewer, **A_PAGE)
    later(11.9)
    assert is_signed_in(viewer, **A_PAGE)
    later(12.1)
    assert not is_signed_in(viewer, **A_PAGE)


def test_it_ends_some_time_after_the_sign_in_however_busy_somebody_is(viewer, later):
    for _ in range(16):
        later(10)
        assert is_signed_in(viewer, **A_PAGE)
    later(10)
    assert not is_signed_in(viewer, **A_PAGE)


def test_what_was_read_before_a_sign_out_is_not_believed_after_it(ann, monkeypatch):
    generation = ended.generation_of(ann.pk)

    def ended_meanwhile(user_pk):
        monkeypatch.undo()
        ended.end("a session", until_ms=2**52)
        return generation

    monkeypatch.setattr(ended, "generation_of", ended_meanwhile)
    assert not ended.is_over("a session", ann.pk, generation)
    assert ended.is_over("a session", ann.pk, generation)
