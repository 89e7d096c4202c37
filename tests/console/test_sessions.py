"""How long somebody stays signed in."""

import time

import pytest
from django.core import signing

from taskstore_project import sessions

pytestmark = [pytest.mark.once, pytest.mark.django_db]

HOUR_S = 3_600
A_PAGE = {"Accept": "text/html,*/*"}
BY_A_SCRIPT = {"Accept": "text/html", "HX-Request": "true", "HX-Request-Type": "partial"}


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


def test_it_ends_some_time_after_the_last_page(viewer, later):
    later(11.9)
    assert is_signed_in(viewer, **A_PAGE)
    later(11.9)
    assert is_signed_in(viewer, **A_PAGE)
    later(12.1)
    assert not is_signed_in(viewer, **A_PAGE)


def test_an_open_page_that_nobody_looks_at_does_not_keep_it(viewer, later):
    later(11.9)
    assert is_signed_in(viewer, **BY_A_SCRIPT)
    later(0.2)
    assert not is_signed_in(viewer, **BY_A_SCRIPT)


def test_it_ends_some_time_after_the_sign_in_however_busy_somebody_is(viewer, later):
    for _ in range(16):
        later(10)
        assert is_signed_in(viewer, **A_PAGE)
    later(10)
    assert not is_signed_in(viewer, **A_PAGE)


def test_a_session_whose_beginning_is_not_known_opens_nothing(viewer, monkeypatch):
    monkeypatch.setattr(sessions, "BEGAN", "another name")
    assert not is_signed_in(viewer)


def test_it_is_not_written_again_with_each_page(viewer, later):
    assert "sessionid" not in viewer.get("/console/workers", headers=A_PAGE).cookies
    later(0.1)
    assert "sessionid" in viewer.get("/console/workers", headers=A_PAGE).cookies
