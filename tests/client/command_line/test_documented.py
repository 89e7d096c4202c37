"""docs/command-line.md: its examples can be typed, and no command is left out."""

import re
import shlex

import click
import pytest

from lab.testing import PROJECT
from taskstore_project.command_table import COMMANDS, program

pytestmark = pytest.mark.once

PAGE = (PROJECT / "docs" / "command-line.md").read_text()
TYPED = re.findall(r"^\$ taskstore (.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", TYPED)
def test_an_example_is_understood(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("people.txt", "later.ndjson", "lines.txt"):  # That some of them read.
        (tmp_path / name).touch()
    command: click.Command = program()
    words = shlex.split(line)
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found, words[0]
        command, words = found, words[1:]
    with command.make_context(command.name, words) as understood:
        assert understood.params


def test_every_command_is_in_the_table():
    table = PAGE.partition("## Server and token")[0]
    assert [name for name in COMMANDS if not re.search(rf"`{name}[` ]", table)] == []
