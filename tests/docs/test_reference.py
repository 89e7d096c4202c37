"""The pages that are made from the product are those of the product as it is."""

import re

import pytest

from lab.documentation import reference
from lab.testing import PROJECT
from tasks_app.access.policy import SCOPES
from tasks_app.models import Scope
from taskstore.endpoints import ENDPOINTS
from taskstore.errors import TaskStoreError

pytestmark = pytest.mark.once


@pytest.mark.parametrize(("name", "text"), reference.pages().items(), ids=reference.pages())
def test_a_page_is_up_to_date(name, text):
    page = PROJECT / "docs" / name
    assert page.read_text() == text, "run `manage.py docs reference`"


def test_every_endpoint_is_told_with_its_scope_and_its_parameters():
    page = (PROJECT / "docs" / "rest.md").read_text()
    told = {
        (method, path, *re.findall(r"(\w+)=", query), scope)
        for cell, scope in re.findall(r"^\| (`[A-Z]+ /.*?) \| (\w+) \|", page, re.MULTILINE)
        for method, path, query in re.findall(r"`([A-Z]+) ([^`?]+)\??([^`]*)`", cell)
    }
    assert told == {
        (each.method, each.path, *(parameter.name for parameter in each.query_parameters), scope_of(each))
        for each in ENDPOINTS
    }


def scope_of(endpoint):
    return "none" if endpoint.needs is None else next(scope for scope in Scope if endpoint.needs in SCOPES[scope])


def test_every_error_is_told():
    def below(kind):
        return {kind, *(each for child in kind.__subclasses__() for each in below(child))}

    page = reference.pages()["errors.md"]
    own = {kind for kind in below(TaskStoreError) if kind.__module__ == "taskstore.errors"} - {TaskStoreError}
    assert [kind.code for kind in own if f"| `{kind.code}` | `{kind.__name__}` |" not in page] == []
