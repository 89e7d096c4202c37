"""The types of what crosses the wire load quickly, and alone."""

import subprocess
import sys

import pytest

from lab.testing import PROJECT

pytestmark = pytest.mark.once

LOAD = """
import sys
from importlib import import_module
before = {name.partition(".")[0] for name in sys.modules}
import taskstore, taskstore.types
for name in sys.argv[1:]:
    import_module(f"taskstore.types.{name}")
added = {name.partition(".")[0] for name in sys.modules} - before - sys.stdlib_module_names
ours = {name for name in sys.modules if name.startswith("taskstore.") and not name.startswith("taskstore.types")}
print(*sorted(added | ours))
"""


def test_they_load_msgspec_and_nothing_else():
    modules = [path.stem for path in (PROJECT / "taskstore" / "types").glob("*.py") if path.stem != "__init__"]
    command = [sys.executable, "-c", LOAD, *modules]
    loaded = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
    # msgspec takes typing_extensions where it is installed.
    assert set(loaded) - {"typing_extensions"} == {"msgspec", "taskstore"}
