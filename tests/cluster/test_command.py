"""The cluster as a command."""

import os
import re
import signal
import subprocess
import sys

import pytest

from lab.testing import PROJECT
from lab.testing.environment import clean_environment

pytestmark = [pytest.mark.once, pytest.mark.servers]


@pytest.fixture
def started(tmp_path):
    """Starts the command, whose output is read while it runs."""
    processes = []

    def start(*arguments):
        processes.append(
            subprocess.Popen(
                [sys.executable, "manage.py", "cluster", "demo", *arguments],
                cwd=PROJECT,
                env=clean_environment(tmp_path / "data"),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.terminate()
        process.communicate()


@pytest.mark.thorough
@pytest.mark.stress
def test_a_standby_takes_the_place_of_the_primary_and_nothing_is_lost(started, disk):
    process = started("--seed", "7", "--folder", str(disk))
    text, complaints = process.communicate()
    assert (process.returncode, complaints) == (0, "")
    [line] = re.findall(r"^\| requests \|(.*)\|$", text, re.MULTILINE)
    acknowledged, faults, _, violations = (int(cell.replace(" ", "")) for cell in line.split("|"))
    assert acknowledged > 0
    assert (faults, violations) == (2, 0)
    assert re.search(r"^\| primary: ", text, re.MULTILINE)
    assert os.listdir(disk) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_leaves_nothing_behind_when_it_is_ended(started, disk, how):
    process = started("--folder", str(disk))
    while "etcd has a leader" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(how)
    process.communicate()
    assert process.returncode == (130 if how == signal.SIGINT else 128 + how)
    assert os.listdir(disk) == []


def test_it_says_what_is_wrong_with_a_folder(refusal):
    complaint = "the directory /nowhere does not exist or is not writable: name another one with --folder"
    assert refusal("cluster", "demo", "--folder", "/nowhere") == f"taskstore: {complaint}\n"
