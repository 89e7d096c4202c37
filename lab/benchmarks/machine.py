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
        "Machine": f"{cores()} cores, {_processor()}, {_memory_gb():.0f} GB, {platform.system()} {platform.release()}",
        "Disk": _disk(folder),
        "Versions": ", ".join(f"{name} {found}" for name, found in versions.items()),
    }


def cores() -> int:
    """Those that we may use."""
    return len(os.sched_getaffinity(0))


def load() -> float:
    """How many processes wanted to run at once in the last minute, on average."""
    return os.getloadavg()[0]


def _disk(folder: Path) -> str:
    took_ms = sorted(_writes_ms(folder))
    half, most = percentile(took_ms, 50), percentile(took_ms, 99)
    return f"{_file_system(folder)}, fdatasync of 4 kB p50 {half:.2f} ms, p99 {most:.2f} ms"


def _writes_ms(folder: Path) -> Iterator[float]:
    """What a database waits for at each commit."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(WRITES):
            started_s = time.perf_counter()
            file.write(PAGE)
            os.fdatasync(file.fileno())
            yield (time.perf_counter() - started_s) * 1000


def _file_system(folder: Path) -> str:
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            kind = after.split()[0]
            return "memory (tmpfs): no commit waits for a disk" if kind == "tmpfs" else kind
    return "unknown file system"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _revision() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"version {version('taskstore')}"
    return f"revision {done.stdout.strip()}"
