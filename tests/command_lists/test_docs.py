"""docs/commands.md tells every verb and every status, and its program runs."""

import inspect
import re

import pytest

from lab.testing import PROJECT
from tasks_app.access import tokens
from tasks_app.models import Scope, Task
from taskstore.client.commands import Commands
from taskstore.types.command_record import CommandStatus

pytestmark = pytest.mark.once

PAGE = (PROJECT / "docs" / "commands.md").read_text()


def test_every_status_is_told():
    assert [status for status in CommandStatus if f"`{status}`" not in PAGE] == []


def test_every_verb_is_told():
    verbs = [name for name, value in vars(Commands).items() if inspect.isfunction(value) and not name.startswith("_")]
    told = re.compile(r"\b(\w+)\(")
    assert set(verbs) - set(told.findall(PAGE)) == set()


def test_the_program_runs(served, monkeypatch, settings, capsys):
    settings.TASKSTORE_COMMANDS = True
    monkeypatch.setenv("TASKSTORE_URL", served.url)
    monkeypatch.setenv("TASKSTORE_TOKEN", tokens.create("ann", Scope.COMMANDS)[1])
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [program] = [each for each in programs if "Submission(" in each]
    exec(program, {})  # noqa: S102 - our own page.
    assert capsys.readouterr().out == "new\n"
    assert Task.objects.count() == 2
