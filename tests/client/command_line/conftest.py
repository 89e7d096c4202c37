"""The commands inside the tests' process, on a server of theirs."""

import io
import json

import pytest
from click.testing import CliRunner

from tasks_app.access import tokens
from tasks_app.models import Scope
from taskstore import Client
from taskstore_project.command_table import program


class Terminal(io.TextIOWrapper):
    """Somebody who types."""

    def __init__(self, typed):
        super().__init__(io.BytesIO(typed.encode()))

    def isatty(self):
        return True


class Told:
    """What a command answered."""

    def __init__(self, result):
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr

    @property
    def records(self):
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def words(self):
        """Without what aligns them."""
        return [" ".join(line.split()) for line in self.out.splitlines() if line.strip()]


def run(*arguments, stdin=None):
    return Told(CliRunner().invoke(program(), list(arguments), input=stdin, prog_name="taskstore"))


@pytest.fixture
def token_of():
    def make(scope):
        return tokens.create("Ann", scope)[1]

    return make


@pytest.fixture
def command(served, token_of):
    """What comes of a command of somebody who may do everything."""
    secret = token_of(Scope.OPERATE)

    def run_here(*arguments, token=secret, **more):
        return run(*arguments, "--url", served.url, "--token", token, **more)

    return run_here


@pytest.fixture
def ann(served, token_of):
    with Client(served.url, token=token_of(Scope.OPERATE), client_id=1) as client:
        yield client


@pytest.fixture
def typing(monkeypatch):
    """Somebody sits at the terminal, and types this."""

    def sit_down(text):
        monkeypatch.setattr("taskstore.cli.change.standard_input", lambda: Terminal(text))

    return sit_down
