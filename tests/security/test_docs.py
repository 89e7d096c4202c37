"""docs/security-promises.md names a test for each promise, and each test of this folder for a promise."""

import re

import pytest

from lab.testing import PROJECT

pytestmark = pytest.mark.once

PAGE = (PROJECT / "docs" / "security-promises.md").read_text()
ROWS = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and "**" not in line][1:]
NAMED = re.findall(r"`(tests/[\w/.]+)`", PAGE)


def test_each_promise_has_its_test():
    assert len(ROWS) > 20
    assert [promise for promise, checks in ROWS if not re.search(r"`tests/", checks)] == []


def test_what_it_names_is_there():
    assert [name for name in NAMED if not (PROJECT / name).is_file()] == []


def test_it_names_every_test_of_this_folder():
    here = {str(file.relative_to(PROJECT)) for file in (PROJECT / "tests" / "security").glob("test_*.py")}
    assert here - {"tests/security/test_docs.py"} <= set(NAMED)
