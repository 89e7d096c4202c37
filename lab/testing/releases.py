"""Make the fixture of a release for tests of upgrades: `python -m lab.testing.releases`.

It writes `tests/fixtures/release-<version>/sqlite.sql` and `postgresql.sql`: the tables of the current version, with
something of everything in them (release_content.py). Run it before each release, with the oldest supported PostgreSQL,
and keep the files of every release: `tests/server/test_upgrading.py` upgrades each of them.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from . import PROJECT, CannotTry
from .environment import clean_environment
from .postgresql import postgresql, system_binaries

FIXTURES = PROJECT / "tests" / "fixtures"
# Lines of pg_dump that only psql or later servers understand.
NOT_SQL = ("\\", "SET transaction_timeout")


def main() -> None:
    release = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    place = FIXTURES / f"release-{release}"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        filled(data, "")
        with closing(sqlite3.connect(data / "taskstore.sqlite3")) as database:
            write(place / "sqlite.sql", database.iterdump())
    # On a temporary server, because another one's database may contain more than the store.
    os.environ.pop("TASKSTORE_TEST_POSTGRES_URL", None)
    with postgresql() as url, tempfile.TemporaryDirectory() as folder:
        filled(Path(folder) / "data", url)
        write(place / "postgresql.sql", dumped(url))
    print(f"wrote {place.relative_to(PROJECT)}")


def filled(data: Path, database_url: str) -> None:
    """Create the tables and fill them, in separate processes because settings name one database."""
    environment = {**clean_environment(data), "DATABASE_URL": database_url}
    for command in (["migrate"], ["shell", "-c", "from lab.testing.release_content import fill; fill()"]):
        subprocess.run([sys.executable, "manage.py", *command, "-v0"], cwd=PROJECT, env=environment, check=True)


def dumped(url: str) -> list[str]:
    """Return what pg_dump writes, as statements that a driver can execute."""
    binaries = system_binaries()
    program = shutil.which("pg_dump", path=binaries) or shutil.which("pg_dump")
    if not program:
        raise CannotTry("There is no pg_dump: install one (`apt-get install postgresql`)")
    # As inserts, because the data of a COPY is not SQL.
    command = [program, "--no-owner", "--no-privileges", "--column-inserts", url]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [line for line in text.rstrip("\n").split("\n") if not line.startswith(NOT_SQL)]


def write(file: Path, lines: Iterable[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
