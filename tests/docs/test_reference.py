"""The tables of the reference pages are those of the product as it is."""

import re
from typing import Any

import pytest
from grpc import StatusCode

from lab.testing import PROJECT
from tasks_app.access.policy import SCOPES
from tasks_app.grpc_api.statuses import status_of
from tasks_app.models import Scope
from tasks_app.rest_api.answers import answer_to
from taskstore.endpoints import ENDPOINTS
from taskstore.errors import CommitRefused, Immutable, InvalidInput, TaskStoreError
from taskstore.types.tasks import Refusal
from taskstore_project import environment
from taskstore_project import settings as own_settings

pytestmark = pytest.mark.once
# The arguments of errors that take more than a text.
EXAMPLES: dict[type[TaskStoreError], list[Any]] = {
    InvalidInput: [{"group": ["must not be empty"]}],
    CommitRefused: [Refusal(deletes=(1,)), Refusal(depends=(1,))],
}


def test_every_endpoint_is_told_with_its_scope_and_its_parameters():
    page = (PROJECT / "docs" / "rest.md").read_text()
    told = {
        (method, path, *re.findall(r"(\w+)=", query), scope)
        for cell, scope in re.findall(r"^\| (`[A-Z]+ /.*?) \| (\w+) \|", page, re.MULTILINE)
        for method, path, query in re.findall(r"`([A-Z]+) ([^`?]+)\??([^`]*)`", cell)
    }
    assert told == {(each.method, each.path, *each.in_query, scope_of(each)) for each in ENDPOINTS}


def scope_of(endpoint):
    return "none" if endpoint.needs is None else next(scope for scope in Scope if endpoint.needs in SCOPES[scope])


def test_every_error_is_told_with_what_it_is_over_the_wire():
    def below(kind):
        return {kind, *(each for child in kind.__subclasses__() for each in below(child))}

    own = {kind for kind in below(TaskStoreError) if kind.__module__ == "taskstore.errors"} - {TaskStoreError}
    page = (PROJECT / "docs" / "errors.md").read_text()
    assert set(re.findall(r"^\| (`\w+` \| `\w+` \| .*? \| .*?) \|", page, re.MULTILINE)) == set(map(told, own))


def told(kind: Any) -> str:
    found = [kind(each) for each in next((some for base, some in EXAMPLES.items() if issubclass(kind, base)), [""])]
    codes = {code.value[0]: f"`{code.name}`" for code in StatusCode}
    # Immutable is raised only by Django's own ways to write a row, never over the wire.
    answers = [answer_to(error, {}) for error in found if kind is not Immutable]
    rest = {str(answer.status_code): 0 for answer in answers if answer is not None}
    grpc = {codes[status.code]: 0 for status in map(status_of, found) if status is not None}
    return " | ".join([f"`{kind.code}`", f"`{kind.__name__}`", ", ".join(rest), ", ".join(grpc)])


# ---- docs/settings.md tells every setting, with the default and the range that the server has


NO_VARIABLES = {"TASKSTORE_NO_AUTH"}  # An option of `up` alone.
PAGE = (PROJECT / "docs" / "settings.md").read_text()
ROWS = {
    name: (default.replace("`", ""), takes.replace("`", ""))
    for name, default, takes in re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
}


def test_every_setting_is_told():
    settings = {name for name in vars(own_settings) if name.startswith("TASKSTORE_")} - NO_VARIABLES
    assert ROWS.keys() == settings | {"DATABASE_URL", "DATABASE_PASSWORD_FILE"}


@pytest.mark.parametrize("name", environment.READINGS)
def test_default_and_range_are_those_of_the_server(name):
    default, takes = ROWS[name]
    reading = environment.READINGS[name]
    assert default == reading.default
    assert takes.removeprefix(takes.partition(", ")[0] + ", ") == reading.takes or takes == reading.takes


def test_the_readme_leads_there_and_names_settings_that_exist():
    readme = (PROJECT / "README.md").read_text()
    assert "(docs/settings.md)" in readme
    assert set(re.findall(r"`(TASKSTORE_[A-Z_]+)`", readme)) <= ROWS.keys() | set(re.findall(r"`(\w+)`", PAGE))
