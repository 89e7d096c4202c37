"""The same tests with another Python, which may mean another line of Django, in an environment of its own."""

import os
import subprocess
import sys
from pathlib import Path

from taskstore_project import bootstrap

from . import PROJECT


def run_with_other_python(arguments: list[str]) -> int:
    """Run `manage.py` with these arguments on the newest Python of another version; return its exit code."""
    found = newest_other_python()
    if not found:
        print("== there is no other Python here to test with", flush=True)
        return 0
    python, version = found
    print(f"== with Python {version}", flush=True)
    environment = {**os.environ, "TASKSTORE_ENVIRONMENT": f".venv-{version}"}
    return subprocess.run([python, PROJECT / "manage.py", *arguments], env=environment, check=False).returncode


def newest_other_python() -> tuple[Path, str] | None:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    for python in bootstrap.interpreters():
        version = bootstrap.version_of(python)
        if version != own:
            return python, version
    return None
