"""Where the output of a command goes, it may not be possible to write."""

import io
import os
import subprocess
import sys

import pytest

from lab.testing import PROJECT
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
