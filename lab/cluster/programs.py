"""The programs of a cluster, each in a separate folder by which all its processes are found."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lab.testing import CannotTry
from lab.testing import postgresql as throw_away
from lab.testing.debian import program
from lab.testing.processes import LOOK_EVERY_S, PROC, is_alive


class Programs:
    """The paths of the programs. Raises CannotTry with the remedy if one is missing and can't be installed."""

    @cached_property
    def etcd(self) -> str:
        return program(("etcd",), ("etcd-server",))

    @cached_property
    def patroni(self) -> str:
        return program(("patroni",), ("patroni",))

    @cached_property
    def pgbouncer(self) -> str:
        return program(("pgbouncer",), ("pgbouncer",))

    @cached_property
    def haproxy(self) -> str:
        return program(("haproxy",), ("haproxy",))

    @cached_property
    def postgresql(self) -> Path:
        """Return the folder of PostgreSQL's programs."""
        if not throw_away.system_binaries():
            program(("postgres",), ("postgresql",))  # Installs it; Debian's is not on the PATH, so search again.
        found = throw_away.system_binaries()
        if not found:
            raise CannotTry(f"There is no PostgreSQL {throw_away.OLDEST} or later; {throw_away.REMEDY}")
        return found

    def versions(self) -> dict[str, str]:
        """The versions, by program."""
        asked = {
            "PostgreSQL": (str(self.postgresql / "postgres"), "--version"),
            "Patroni": (self.patroni, "--version"),
            "etcd": (self.etcd, "--version"),
            "pgbouncer": (self.pgbouncer, "--version"),
            "haproxy": (self.haproxy, "-v"),
        }
        return {name: version_told_by(command) for name, command in asked.items()}


def version_told_by(command: Sequence[str]) -> str:
    """Return the version number in a program's output."""
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+\.[\d.]*\d", told)
    return found.group() if found else "of unknown version"


@dataclass
class Program:
    """A program with all its processes: everything that runs in its folder."""

    command: Sequence[str]
    folder: Path
    is_unprivileged: bool = False  # Runs as another user than root, which most of the programs refuse.
    _process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def write(self, name: str, text: str) -> None:
        """Write a file that no other user can read."""
        file = self.folder / name
        file.touch(mode=0o600)
        file.write_text(text)

    def begin(self) -> None:
        if self.is_unprivileged:
            throw_away.give(self.folder)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must reach only this process, which ends it.
                **(throw_away.identity() if self.is_unprivileged else {}),
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill all its processes, and wait until they are gone."""
        kill_all_in(self.folder)
        if self._process is not None:
            self._process.wait()


def kill_all_in(folder: Path) -> None:
    """Kill all processes that run in the folder, including new ones, and wait until they are gone."""
    while alive := [pid for pid in at_work_in(folder) if is_alive(pid)]:
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_EVERY_S)


def at_work_in(folder: Path) -> list[int]:
    """Yield the processes that work in or below the folder, because PostgreSQL does not stay a child of Patroni."""
    return [int(each.name) for each in PROC.iterdir() if each.name.isdigit() and _works_in(each, folder)]


def _works_in(process: Path, folder: Path) -> bool:
    # Not readable for ended processes and for those of other users.
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return (process / "cwd").readlink().is_relative_to(folder)
    return False
