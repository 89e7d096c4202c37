"""The benchmark as a command."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from django.db import connection

from lab.testing import PROJECT
from lab.testing.suite import clean_environment

# Those that stand on the database of this run.
CONTENDERS = ["psycopg", "writer", "daphne"] if connection.vendor == "postgresql" else ["writer-sqlite"]


@pytest.fixture
def disk():
    # Not pytest's own folder: PostgreSQL may run as another user, who has to reach it.
    folder = Path(tempfile.mkdtemp(prefix="taskstore-test-bench-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def bench(tmp_path, disk):
    def run(*arguments):
        command = [sys.executable, "manage.py", "bench", "--folder", str(disk), *arguments]
        environment = clean_environment(tmp_path / "data")
        return subprocess.run(
            command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    return run


@pytest.mark.stress
def test_it_measures_and_writes_a_report_and_leaves_nothing_behind(bench, disk, tmp_path):
    report = tmp_path / "docs" / "benchmarks.md"
    done = bench("--quick", "--rounds", "1", "--save", str(report), "cycles", *CONTENDERS)
    assert (done.returncode, done.stderr) == (0, "")
    rates = re.findall(r"^\| (\S+) +\| +(\d+) \| +([\d ]+) \(", report.read_text(), re.MULTILINE)
    assert {(name, clients) for name, clients, _ in rates} >= {(CONTENDERS[0], "1"), (CONTENDERS[-1], "32")}
    assert all(int(rate.replace(" ", "")) > 0 for _, _, rate in rates)
    assert f"manage.py bench --folder {disk} --quick" in report.read_text()
    assert report.read_text().rpartition("\n\n## ")[2] in done.stdout
    assert os.listdir(disk) == []


@pytest.mark.once
def test_it_says_what_there_is_when_a_name_is_wrong(bench):
    done = bench("rest", "rset")
    assert done.returncode == 2
    assert re.fullmatch(r"taskstore: there is nothing called rset to measure; there is .*rest.*\n", done.stderr)


@pytest.mark.once
@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_it_takes_no_nonsense_for_a_number(bench, number):
    done = bench(f"--rounds={number}")
    assert done.returncode == 2
    assert "is no whole number from 1" in done.stderr
