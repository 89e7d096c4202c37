"""What the figures depend on beside the code: the machine, its disk, its load, the versions."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from lab.testing import PROJECT
from lab.testing.postgresql import system_binaries
from lab.testing.postgresql import version as version_of

from .figures import percentile

PACKAGES = ("Django", "djangorestframework", "psycopg", "daphne", "uvicorn", "uvloop")
WRITES = 200
PAGE = b"\0" * 4096


def conditions(folder: Path) -> dict[str, str]:
    """Each by its name. `folder`: where the databases are."""
    system = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version}
    if binaries := system_binaries():
        system["PostgreSQL"] = str(version_of(binaries))
    versions = {**system, **{name: version(name) for name in PACKAGES}}
    return {
        "When": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {_revision()}",
        "Machine": f"{len(os.sched_getaffinity(0))} cores, {_processor()}, {platform.system()} {platform.release()}",
        "Disk": _disk(folder),
        "Versions": ", ".join(f"{name} {found}" for name, found in versions.items()),
    }


def load() -> float:
    """How many processes wanted to run at once in the last minute, on average."""
    return os.getloadavg()[0]


def commit_of(revision: str) -> str:
    """Return the commit of a revision of this project; empty if there is none."""
    command = ["git", "rev-parse", "--quiet", "--verify", "--short=8", "--end-of-options", f"{revision}^{{commit}}"]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False).stdout.strip()


def _disk(folder: Path) -> str:
    took_ms = list(_writes_ms(folder))
    half, most = percentile(took_ms, 50), percentile(took_ms, 99)
    return f"fdatasync of 4 kB p50 {half:.2f} ms, p99 {most:.2f} ms"


def _writes_ms(folder: Path) -> Iterator[float]:
    """What a database waits for at each commit."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(WRITES):
            started_s = time.perf_counter()
            file.write(PAGE)
            os.fdatasync(file.fileno())
            yield (time.perf_counter() - started_s) * 1000


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _revision() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    return f"revision {done.stdout.strip()}" if done.returncode == 0 else f"version {version('taskstore')}"
