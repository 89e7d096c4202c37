"""Who comes into Django's admin, and by which door."""

import re

import pytest
from django.test import Client

from tasks_app.access.people import password_was_given

from ..people import make_user, signed_in

pytestmark = pytest.mark.once

INDEX = "/admin/"

PAGES = [f"/admin/tasks_app/{model}/" for model in ("task", "endedtask")]


def test_it_shows_each_role_its_pages_and_no_others(viewer, operator, administrator):
    for client in (viewer, operator, administrator):
        shown = client.get(INDEX).content.decode()
        assert set(re.findall(r'href="(/admin/\w+/\w+/)"', shown)) == set(PAGES)


@pytest.mark.parametrize("url", [INDEX, *PAGES, "/admin/tasks_app/task/1/change/"])
def test_strangers_are_led_to_the_sign_in_of_the_console_and_back(db, url):
    response = Client().get(url, follow=True)
    assert response.redirect_chain[-1] == (f"/console/login?next={url}", 302)


def test_without_a_role_nobody_comes_in(db):
    client = signed_in(make_user("bob"))
    assert client.get(INDEX, follow=True).status_code == 403


def test_a_one_time_password_opens_nothing_but_the_choice_of_another(db):
    bob = make_user("bob", "admin")
    password_was_given(bob)
    assert signed_in(bob).get(INDEX, follow=True).redirect_chain[-1] == ("/console/password", 302)


@pytest.mark.parametrize("url", [INDEX, *PAGES])
def test_nothing_of_it_is_kept_by_browsers(viewer, url):
    assert "no-store" in viewer.get(url)["Cache-Control"]
