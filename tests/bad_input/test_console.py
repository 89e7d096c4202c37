"""The catalogue against the console: a page that says what is wrong, nothing changed, and the next page comes."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from tests.people import make_user, signed_in

from .catalogue import expanded, table
from .store import everything, three_tasks

REQUESTS = table("console")["requests"]


@pytest.fixture
def browser(db):
    """Of an administrator, who may also see what tasks hold."""
    return signed_in(make_user("ada", "admin", "see payloads"))


@pytest.mark.parametrize("case", REQUESTS, ids=[case["it"] for case in REQUESTS])
def test_it_is_told_and_changes_nothing(browser, case):
    ids = three_tasks()
    before = everything()
    answer = sent(sender(case, browser), case, ids)
    page = answer.content.decode()
    assert (answer.status_code, case.get("tells", "") in words_of(page)) == (case.get("status", 400), True), words_of(
        page
    )
    assert "<script>alert" not in page
    assert everything() == before
    assert browser.get("/console/").status_code == 200


def sender(case: dict[str, Any], browser: Client) -> Client:
    if "as" in case:
        return Client() if case["as"] == "nobody" else signed_in(make_user("vera", case["as"]))
    if case.get("without") == "csrf":
        browser.handler.enforce_csrf_checks = True
    return browser


def sent(client: Client, case: dict[str, Any], ids: dict[str, int]) -> Any:
    method = next(method for method in ("get", "post", "delete") if method in case)
    path = case[method] + expanded(case.get("then", ""), {})
    if "text" in case:
        return client.generic(method.upper(), path, expanded(case["text"], {}), case["type"])
    return getattr(client, method)(path, expanded(case.get("form", {}), ids))


def words_of(page: str) -> str:
    """What can be read in the middle of the page."""
    middle = page.partition("<main")[2].partition("</main>")[0] or page
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", middle)).split())
