"""The servers that contenders stand on, started when the first one asks: throw-away, and as durable as by default."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psycopg
from psycopg import sql

from lab.testing import CannotTry
from lab.testing.environment import clean_environment
from lab.testing.postgresql import Cluster
from taskstore_project.base_command import CannotRun


class PostgreSQL(Cluster):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._with_tables: dict[Path, str] = {}

    @property
    def pid(self) -> int:
        return self.process.pid

    def version(self) -> str:
        with psycopg.connect(self.url) as connection:
            return connection.info.parameter_status("server_version") or ""

    def tables_of(self, checkout: Path) -> str:
        """A database with the tables of the store in this folder, to be copied."""
        if checkout not in self._with_tables:
            name = f"store{len(self._with_tables)}"
            environment = {**clean_environment(self.folder / name), "DATABASE_URL": self.new_database(name)}
            command = [sys.executable, "-m", "taskstore_project", "migrate", "--verbosity=0", "--skip-checks"]
            subprocess.run(command, cwd=checkout, env=environment, check=True)
            self._with_tables[checkout] = name
        return self._with_tables[checkout]

    def drop(self, name: str) -> None:
        # Somebody may be on their way out still.
        self.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@dataclass
class Services:
    """What has been started so far; all of it ends with the `with` block."""

    parent: Path  # Where the folders of the databases are made.
    _stack: ExitStack = field(default_factory=ExitStack)
    _postgresql: PostgreSQL | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def postgresql(self) -> PostgreSQL:
        if self._postgresql is None:
            try:
                self._postgresql = self._stack.enter_context(PostgreSQL(self.new_folder("postgresql")).running())
            except CannotTry as problem:
                raise CannotRun(str(problem)) from None
        return self._postgresql

    def versions(self) -> dict[str, str]:
        """Of those that have been started."""
        return {"PostgreSQL": self._postgresql.version()} if self._postgresql else {}

    def new_folder(self, name: str) -> Path:
        """One that goes at the end."""
        # Side by side, not in one: PostgreSQL's is given to another user, who has to reach it.
        folder = Path(tempfile.mkdtemp(prefix=f"taskstore-{name}-", dir=self.parent))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder
