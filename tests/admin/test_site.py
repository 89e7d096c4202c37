"""Who comes into Django's admin, and by which door."""

import pytest
from django.test import Client

from tasks_app.access.people import password_was_given

from ..people import make_user, signed_in

pytestmark = pytest.mark.once

INDEX = "/admin/"

PAGES_OF_ALL = ["/admin/tasks_app/task/", "/admin/tasks_app/endedtask/"]
PAGES_OF_OPERATORS = ["/admin/tasks_app/auditentry/"]
PAGES_OF_ADMINISTRATORS = ["/admin/tasks_app/token/", "/admin/auth/user/", "/admin/auth/group/"]


def test_it_shows_each_role_its_pages(viewer, operator, administrator):
    every = PAGES_OF_ALL + PAGES_OF_OPERATORS + PAGES_OF_ADMINISTRATORS
    for client, pages in (
        (viewer, PAGES_OF_ALL),
        (operator, PAGES_OF_ALL + PAGES_OF_OPERATORS),
        (administrator, every),
    ):
        shown = client.get(INDEX).content.decode()
        assert [url for url in every if f'href="{url}"' in shown] == pages


@pytest.mark.parametrize(
    "url", [INDEX, *PAGES_OF_ALL, *PAGES_OF_OPERATORS, *PAGES_OF_ADMINISTRATORS, "/admin/tasks_app/task/1/change/"]
)
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


@pytest.mark.parametrize("url", [INDEX, *PAGES_OF_ALL])
def test_nothing_of_it_is_kept_by_browsers(viewer, url):
    assert "no-store" in viewer.get(url)["Cache-Control"]
