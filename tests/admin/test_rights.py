"""Who may open what in Django's admin: each address with each role. A new address without a row fails."""

import pytest
from django.contrib import admin
from django.test import Client

from tasks_app.models import Task

from ..people import EVERYBODY, NOBODY, OPERATORS, signed_in
from .pages import add, claim

pytestmark = pytest.mark.once

OF_ALL = dict.fromkeys(("", "<path:object_id>/", "<path:object_id>/change/", "<path:object_id>/history/"), EVERYBODY)
ADDED_BY_NOBODY = dict.fromkeys(("add/", "<path:object_id>/delete/"), NOBODY)
CHANGED_BY_OPERATORS = dict.fromkeys(("add/", "<path:object_id>/delete/"), OPERATORS)

MODELS = {"tasks_app/task/": OF_ALL | CHANGED_BY_OPERATORS, "tasks_app/endedtask/": OF_ALL | ADDED_BY_NOBODY}
PAGES = {
    **{model + page: allowed for model, pages in MODELS.items() for page, allowed in pages.items()},
    "": EVERYBODY,
    "autocomplete/": NOBODY,  # No form of ours completes anything.
    "jsi18n/": EVERYBODY,
    "password_change/": EVERYBODY,
    "password_change/done/": EVERYBODY,
    # There is nothing: no model of ours has a page of its own elsewhere.
    "r/<path:content_type_id>/<path:object_id>/": EVERYBODY,
    "(?P<url>.*)$": EVERYBODY,
}
# Each shows those who may look at one of its models these models; test_site.py is about that.
APPS = "^(?P<app_label>tasks_app)/$"
# What leads to the console's sign-in, and out; test_site.py is about these.
BEFORE_ROLES = {"login/", "logout/"}


@pytest.fixture
def ids(people) -> dict[str, int]:
    """One row of each model, for the addresses of a row."""
    ended = add("mail")
    claim("mail")
    return {"task": add("reports").id, "endedtask": ended.id}


def addresses():
    for pattern in admin.site.get_urls():
        for inner in getattr(pattern, "url_patterns", [pattern]):
            yield str(inner.pattern) if inner is pattern else f"{pattern.pattern}{inner.pattern}"


def path_of(page: str, ids: dict[str, int]) -> str:
    model = page.split("/")[1] if page.count("/") > 1 else ""
    row = str(ids.get(model, 1))
    return "/admin/" + page.replace("<path:object_id>", row).replace("<id>", row).replace("(?P<url>.*)$", "nothing")


def test_it_has_a_row_for_each_address():
    assert set(addresses()) == {*PAGES, *BEFORE_ROLES, APPS}


@pytest.mark.parametrize("page", PAGES)
def test_it_lets_in_who_may_and_nobody_else(people, ids, page):
    path = path_of(page, ids)
    refused = {role for role, user in people.items() if signed_in(user).get(path).status_code == 403}
    assert refused == set(people) - PAGES[page]
    assert Client().get(path).headers["Location"].startswith("/admin/login/?next=/")


@pytest.mark.parametrize("page", PAGES)
def test_it_changes_nothing_for_those_who_may_not(people, ids, page):
    tasks = set(Task.objects.values_list("id", flat=True))
    typed = {"post": "yes", "group": "mail"}
    for role in set(people) - PAGES[page]:
        signed_in(people[role]).post(path_of(page, ids), typed)
    assert set(Task.objects.values_list("id", flat=True)) == tasks
