"""What is installed is what was looked at: each package at one version, by its hashes."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from lab.testing import PROJECT

pytestmark = pytest.mark.once

LOCKS = sorted((PROJECT / "requirements").glob("*.txt"))
ENTRY = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^ ;\\]+)(?: ; [^\\]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_package_is_locked_with_its_hashes(lock):
    lines = [line for line in lock.read_text().splitlines() if line and not line.lstrip().startswith("#")]
    assert ENTRY.match(lines[0])
    assert [line for line in lines if not (ENTRY.match(line) or HASH.match(line))] == []
    # An entry ends where the next one begins: after a line of a hash.
    assert [name for name, after in pairwise(lines) if ENTRY.match(name) and not HASH.match(after)] == []
    assert HASH.match(lines[-1])


def test_what_is_installed_at_the_first_start_has_to_have_its_hash():
    text = (PROJECT / "taskstore_project" / "bootstrap.py").read_text()
    assert "--require-hashes" in text


def test_the_servers_own_versions_are_those_that_are_tested():
    server, tested = (versions(PROJECT / "requirements" / f"{name}.txt") for name in ("server", "test"))
    assert server
    assert server <= tested


def versions(lock: Path) -> set[tuple[str, str]]:
    """Name and version of each package; one that is for some Pythons only may have several."""
    return {(entry["name"], entry["version"]) for line in lock.read_text().splitlines() if (entry := ENTRY.match(line))}
