"""What is known of processes by their pid."""

import os
import subprocess
import sys

import pytest

from taskstore.worker.process_tree import born, has_ended

pytestmark = pytest.mark.once


def test_a_process_lives_until_it_has_ended():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    since = born(process.pid)
    assert not has_ended(process.pid, since)
    process.communicate()
    assert has_ended(process.pid, since)


def test_a_pid_that_is_used_again_is_another_process():
    assert has_ended(os.getpid(), "long ago")


def test_a_process_that_can_not_be_seen_may_live(monkeypatch):
    """As with those of other users, where the system hides them."""
    since = born(os.getpid())
    monkeypatch.setattr("taskstore.worker.process_tree._stat", lambda pid: [])
    assert not has_ended(os.getpid(), since)
