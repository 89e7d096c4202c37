"""The Python versions on this machine that the project supports. Each may have another line of Django."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from taskstore_project import bootstrap

from . import PROJECT, CannotTry


@dataclass(frozen=True)
class Python:
    """An interpreter in an environment of the project. `folder`: of the environment, empty for the running one."""

    version: str
    interpreter: Path
    folder: str = ""

    @classmethod
    def running(cls) -> Self:
        return cls(f"{sys.version_info.major}.{sys.version_info.minor}", Path(sys.executable))

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables with which `manage.py` stays in this environment."""
        return {"TASKSTORE_ENVIRONMENT": self.folder} if self.folder else {}


def oldest_and_newest() -> tuple[Python, Python]:
    """Return both with what the tests need installed; they are the same where there is only one.

    Raises CannotTry if the environment of another Python can't be made.
    """
    running = Python.running()
    found = {running.version: running}
    for base in bootstrap.interpreters():
        version = bootstrap.version_of(base)
        folder = f".venv-{version}"
        found.setdefault(version, Python(version, base, folder))
    order = sorted(found.values(), key=lambda python: [int(part) for part in python.version.split(".")])
    return _installed(order[0]), _installed(order[-1])


def _installed(python: Python) -> Python:
    if not python.folder:
        return python
    command = [str(python.interpreter), "manage.py", "test", "--install"]
    environment = {**os.environ, **python.variables}
    if subprocess.run(command, cwd=PROJECT, env=environment, check=False).returncode:
        raise CannotTry(f"the environment for Python {python.version} can't be made: see above")
    return Python(python.version, PROJECT / python.folder / "bin" / "python", python.folder)
