"""Every failure is a line that says what to do, and an exit code."""

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope
from tests.served import free_port

from .conftest import run


@pytest.mark.once
def test_a_server_that_is_away_is_exit_code_3(monkeypatch, tmp_path):
    monkeypatch.setattr("taskstore.cli.base.PATIENCE_S", 0)
    url = f"http://127.0.0.1:{free_port()}"
    told = run("groups", "--url", url)
    assert (told.code, told.out) == (3, "")
    assert f"({url}; use --url or TASKSTORE_URL for another server)\n" in told.err
    assert told.err.count("\n") == 1
    monkeypatch.setenv("TASKSTORE_DATA", str(tmp_path))
    monkeypatch.delenv("TASKSTORE_URL", raising=False)
    assert ", --data or TASKSTORE_DATA for the one of another data directory on this machine)\n" in run("groups").err


@pytest.mark.parametrize(
    ("scope", "needs", "arguments"),
    [
        (Scope.READ, "work", ("add", "mail", "x")),
        (Scope.WORK, "operate", ("pause", "mail")),
        (Scope.WORK, "operate", ("requeue", "group:mail", "--yes")),
        (Scope.WORK, "operate", ("operations",)),
    ],
)
def test_what_is_not_allowed_is_exit_code_4_and_names_the_scope(command, token_of, scope, needs, arguments):
    told = command(*arguments, token=token_of(scope))
    assert (told.code, told.out) == (4, "")
    assert f"`taskstore token create NAME --scope {needs}`" in told.err


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments", [("groups", "--url", "nonsense"), ("stats", "--nonsense"), ("ls",), ("nonsense",)]
)
def test_what_makes_no_sense_is_exit_code_2(arguments):
    told = run(*arguments)
    assert (told.code, told.out) == (2, "")
    assert "Traceback" not in told.err


def test_a_token_for_other_groups_is_told_so(command):
    secret = tokens.create("Ann", Scope.WORK, groups=["pay/*"])[1]
    told = command("add", "mail", "x", token=secret)
    assert told.code == 4
    assert 'has no access to the group "mail"' in told.err
    assert "`taskstore token create NAME --scope work --groups GROUP`" in told.err
