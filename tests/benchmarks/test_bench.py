"""The benchmark as a command."""

import os
import re
from functools import partial

import pytest
from django.db import connection

# Those that stand on the database of this run, the first of them without a server.
POSTGRESQL, SQLITE = ["psycopg", "uvicorn", "uvicorn-before"], ["daphne-sqlite", "daphne-sqlite-before"]
CONTENDERS = POSTGRESQL if connection.vendor == "postgresql" else SQLITE


@pytest.fixture
def bench(lab_command):
    return partial(lab_command, "bench")


@pytest.mark.thorough
@pytest.mark.stress
def test_it_measures_and_writes_a_report_and_leaves_nothing_behind(bench, disk, tmp_path):
    report = tmp_path / "docs" / "benchmarks.md"
    options = ["--quick", "--rounds", "1", "--against", "HEAD", "--save", str(report)]
    done = bench(*options, "peers-psycopg", *CONTENDERS)
    assert (done.returncode, done.stderr) == (0, "")
    text = report.read_text()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    of = {line[0]: dict(zip(lines[0], line, strict=True)) for line in lines if len(line) == len(lines[0])}
    assert {*CONTENDERS} <= {*of}
    for name in CONTENDERS:
        assert int(of[name]["tasks per second"].partition("(")[0].replace(" ", "")) > 0
        assert int(of[name]["server, µs per request"].replace(" ", "")) > 0
        assert of[name]["database"].replace(" ", "").isdigit() == (connection.vendor == "postgresql")
    assert "compared with the earlier revision" in text
    assert f"manage.py bench --folder {disk} --quick" in text
    assert text.rpartition("\n\n## ")[2] in done.stdout
    assert os.listdir(disk) == []


@pytest.mark.once
def test_it_says_what_there_is_when_a_name_is_wrong(refusal):
    told = refusal("bench", "cycles", "cycels")
    assert re.fullmatch(r"taskstore: cycels is not a known benchmark or contender; choose from .*cycles.*\n", told)


@pytest.mark.once
@pytest.mark.parametrize("name", ["no-such", "--help", "HEAD:README.md"])
def test_it_compares_with_a_revision_only(refusal, name):
    told = refusal("bench", f"--against={name}")
    assert told == f"taskstore: {name} is not a revision in the git history of this project\n"


@pytest.mark.once
@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_it_takes_no_nonsense_for_a_number(refusal, number):
    assert "must be a number between 1 and 1000000, not" in refusal("bench", f"--rounds={number}")
