"""The Python versions on this machine that the project supports. Each may have another line of Django."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from taskstore_project import bootstrap

from . import PROJECT


@dataclass(frozen=True)
class Python:
    """An interpreter. `folder`: of its environment in the project, which may not be there yet; empty: it runs us."""

    version: str
    base: Path
    folder: str = ""

    @classmethod
    def running(cls) -> Self:
        return cls(f"{sys.version_info.major}.{sys.version_info.minor}", Path(sys.executable))

    @property
    def interpreter(self) -> Path:
        return PROJECT / self.folder / "bin" / "python" if self.folder else self.base

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables with which `manage.py` makes this environment and stays in it."""
        return {"TASKSTORE_ENVIRONMENT": self.folder} if self.folder else {}


def oldest_and_newest() -> tuple[Python, Python]:
    """Return both; they are the same where there is only one."""
    running = Python.running()
    found = {running.version: running}
    for base in bootstrap.interpreters():
        version = bootstrap.version_of(base)
        found.setdefault(version, Python(version, base, f".venv-{version}"))
    order = sorted(found.values(), key=lambda python: [int(part) for part in python.version.split(".")])
    return order[0], order[-1]
