"""The folders, the PostgreSQL and the stores of scenes and measurements."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

from . import PROJECT, CannotTry
from .postgresql import Cluster
from .servers import command

PATIENCE_S = 120.0


@dataclass
class Places:
    """All of it is removed at the end of the `with` block. `parent`: the directory for the folders."""

    parent: Path
    _stack: ExitStack = field(default_factory=ExitStack)
    _templates: dict[Path, tuple[str, str]] = field(default_factory=dict)
    _checkouts: dict[str, Path] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def new_folder(self, name: str) -> Path:
        # Side by side, not in one: PostgreSQL's is given to another user, who has to reach it.
        folder = Path(mkdtemp(prefix=f"taskstore-{name}-", dir=self.parent))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def new_cluster(self, **settings: str) -> Cluster:
        """Start a PostgreSQL, as durable as by default. Raises CannotTry."""
        cluster = Cluster(self.new_folder("postgresql"), **settings)
        cluster.make()
        self._stack.callback(cluster.kill)
        cluster.start()
        return cluster

    @cached_property
    def cluster(self) -> Cluster:
        """The PostgreSQL that most scenes share."""
        return self.new_cluster()

    def checkout(self, revision: str) -> Path:
        """Return a directory with the project as it was at a revision. Raises CannotTry."""
        if revision not in self._checkouts:
            folder = self.new_folder("revision")
            copy, checkout = ["clone", "--quiet", "--shared", str(PROJECT), "."], ["checkout", "--quiet", revision]
            for words in (copy, checkout):
                done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise CannotTry(f"revision {revision} can't be checked out: {done.stderr.strip()}")
            self._checkouts[revision] = folder
        return self._checkouts[revision]

    def template(self, checkout: Path = PROJECT) -> tuple[str, str]:
        """Return the name of a database to copy, with the tables of the store in a checkout, and a token of it."""
        if checkout not in self._templates:
            name = f"store{len(self._templates)}"
            token = make_store(self.new_folder("tables"), self.cluster.new_database(name), checkout)
            self._templates[checkout] = name, token
        return self._templates[checkout]

    @cached_property
    def sqlite(self) -> tuple[Path, str]:
        """A data directory to copy, whose SQLite file has tables, and a token of it."""
        folder = self.new_folder("sqlite")
        return folder, make_store(folder, "")


def make_store(folder: Path, url: str, checkout: Path = PROJECT) -> str:
    """Create the tables, and return a token."""
    command("migrate", "--verbosity=0", "--skip-checks", folder=folder, checkout=checkout, DATABASE_URL=url)
    words = ("token", "create", "lab", "--scope", "operate")
    return command(*words, folder=folder, checkout=checkout, DATABASE_URL=url)


def wait_until(condition: Callable[[], bool], what: str) -> float:
    """Wait for a condition, and return how long that took in seconds. Raises CannotTry after PATIENCE_S."""
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() - began_s > PATIENCE_S:
            raise CannotTry(f"it did not happen in {PATIENCE_S:g} s that {what}")
        time.sleep(0.05)
    return time.monotonic() - began_s
