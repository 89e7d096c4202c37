"""Chaos as a command."""

import os
import re
from functools import partial

import pytest
from django.db import connection


@pytest.fixture
def chaos(lab_command):
    return partial(lab_command, "chaos")


@pytest.mark.once
@pytest.mark.servers
def test_it_breaks_things_checks_what_clients_saw_and_leaves_nothing_behind(chaos, disk):
    # Eight killed workers take a few seconds. `.ci/run` plays all scenes.
    done = chaos("--tiny", "kill-worker", "--database", connection.vendor, "--seed", "7")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("seed 7\n")
    [line] = re.findall(r"^\| `kill-worker` \|(.*)\|$", done.stdout, re.MULTILINE)
    database, operations, faults, _, violations, _ = (cell.strip() for cell in line.split("|"))
    assert (database, faults, violations) == (connection.vendor, "8", "0")
    assert int(operations.replace(" ", "")) > 0
    assert os.listdir(disk) == []


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["kill-sever"], r"taskstore: kill-sever is not a known scene; use one of .*kill-server.*\n"),
        (
            ["kill-postgresql", "--database", "sqlite"],
            r"taskstore: kill-postgresql can't be tried on sqlite: choose another database\n",
        ),
        (
            ["--folder", "/nowhere"],
            r"taskstore: the directory /nowhere does not exist: name another one with --folder\n",
        ),
    ],
)
def test_it_says_what_is_wrong_with_what_it_was_told(refusal, arguments, complaint):
    assert re.fullmatch(complaint, refusal("chaos", *arguments))
