"""Where the output of a command goes, it may not be possible to write."""

import io
import os
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from lab.testing import PROJECT
from taskstore.cli.tables import Column, table
from taskstore_project import __main__ as program

pytestmark = pytest.mark.once


def told(shell, **variables):
    """What a command in a shell says on standard error, and its exit code."""
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    done = subprocess.run(["sh", "-c", shell], cwd=PROJECT, env=environment, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("to", "why"), [(">/dev/full", "No space left on device"), (">&-", "standard output is closed")]
)
def test_an_output_that_takes_nothing_is_one_line(to, why):
    assert told(f'"$PYTHON" manage.py --help {to}') == (1, f"taskstore: the output can't be written: {why}\n")


def test_a_reader_that_has_read_enough_is_not_told():
    assert told('"$PYTHON" manage.py --help | true; "$PYTHON" manage.py --help | head -1 >/dev/null') == (0, "")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_an_encoding_that_lacks_a_character_is_named(monkeypatch, capfd, encoding):
    monkeypatch.setattr(program, "run", lambda: print("one \N{RIGHTWARDS ARROW} two"))
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 1
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("taskstore: the output can't be written: its encoding")
    assert error.endswith(f"{encoding}, has no '\\u2192': set PYTHONIOENCODING=utf-8\n")


# ---- What is shown of a table where the terminal is narrow


COLUMNS: tuple[Column[Any], ...] = (
    Column("group", lambda row: row[0], is_long=True, is_folded=True),
    Column("worker", lambda row: row[1], is_spare=True),
    Column("error", lambda row: row[2], is_long=True),
)
ROWS = [("jobs/default/failed", "ann", "x" * 40), ("jobs/default/succeeded", "", "")]


def shown(width):
    output = io.StringIO()
    Console(file=output, width=width).print(table(COLUMNS, ROWS))
    return [line.split() for line in output.getvalue().splitlines()]


def test_all_of_it_is_shown_where_there_is_room():
    assert shown(100) == [["group", "worker", "error"], ["jobs/default/failed", "ann", "x" * 40], [ROWS[1][0]]]


def test_what_can_be_spared_is_left_out_where_there_is_none():
    assert shown(60)[0] == ["group", "error"]


def test_the_end_of_a_long_group_is_not_cut():
    lines = shown(30)
    assert [line[0] for line in lines] == ["group", "jobs/default/", "failed", "jobs/default/", "succeeded"]
    assert lines[1][1].endswith("x…")
