"""A store for each test, on the database that this run is for."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from django.db import connection
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from lab.testing.postgresql import Cluster

from . import harness
from .clusters import cluster, follow
from .harness import Server, Store, free_port

Copies = Callable[[Path], AbstractContextManager[Store]]

IS_POSTGRESQL = connection.vendor == "postgresql"
# With one worker, as with `up`, what one connection gets answered says what has become of another one.
SERVE = "serve --workers 1"
COMMAND = SERVE if IS_POSTGRESQL else "up"

# What has no meaning on the database of this run.
OF_POSTGRESQL = (
    "connections_cut",
    "failover",
    "locked_rows",
    "nodes",
    "outage",
    "pgbouncer",
    "replica",
    "serve",
    "unique_killed",
    "up_on_postgresql",
)
collect_ignore = [] if IS_POSTGRESQL else [f"test_{name}.py" for name in OF_POSTGRESQL]


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("servers")


@pytest.fixture(scope="session")
def started_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store as the first server that was started on it leaves it: with all tables, empty."""
    with new_store(tmp_path_factory.mktemp("started-once")) as store:
        with store.up() as server:
            assert server.end() == 0
        yield store


@pytest.fixture(scope="session")
def copies(started_once: Store) -> Copies:
    """Makes stores on which a server has been started: half the time of the tests would go into making tables."""
    return lambda folder: copy_of(started_once, folder)


@pytest.fixture
def store(tmp_path: Path, copies: Copies) -> Iterator[Store]:
    with copies(tmp_path) as store:
        yield store


@pytest.fixture
def empty_place(tmp_path: Path) -> Iterator[Store]:
    """Where no server was ever started."""
    with new_store(tmp_path) as store:
        yield store


@pytest.fixture(scope="session")
def lasting_store(tmp_path_factory: pytest.TempPathFactory, copies: Copies) -> Iterator[Store]:
    with copies(tmp_path_factory.mktemp("lasting")) as store:
        yield store


@pytest.fixture(scope="session")
def lasting_server(lasting_store: Store) -> Iterator[Server]:
    """For all tests of a process; none of them may end it, and each leaves a store without tasks behind."""
    with lasting_store.up("--commands", "--grpc-port", str(free_port()), command=COMMAND) as server:
        yield server


@pytest.fixture
def new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers and commands start as they do for users."""
    monkeypatch.setattr(harness, "is_prepared", False)


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def command() -> str:
    """The command that starts a server: `up` with daphne on SQLite, `serve` with uvicorn on PostgreSQL."""
    return COMMAND


@pytest.fixture(params=["up", *([SERVE] if IS_POSTGRESQL else [])])
def every_command(request: pytest.FixtureRequest) -> str:
    """Each of the commands that start a server on the database of this run, where it is about both together."""
    return str(request.param)


@pytest.fixture
def primary() -> Iterator[Cluster]:
    """A PostgreSQL of the test's own."""
    with cluster() as started:
        yield started


@pytest.fixture
def standby(primary: Cluster) -> Iterator[Cluster]:
    """One that follows the primary, which does not wait for it."""
    with cluster() as started:
        started.kill()
        follow(started, primary)
        yield started


@contextmanager
def new_store(parent: Path) -> Iterator[Store]:
    if not IS_POSTGRESQL:
        yield Store(parent)
        return
    with database() as url:
        yield Store(parent, url)


@contextmanager
def copy_of(original: Store, parent: Path) -> Iterator[Store]:
    shutil.copytree(original.folder, parent / "data")
    if not IS_POSTGRESQL:
        yield Store(parent)
        return
    with database(template=str(conninfo_to_dict(original.database_url)["dbname"])) as url:
        yield Store(parent, url)


@contextmanager
def database(template: str = "template1") -> Iterator[str]:
    """The address of a PostgreSQL database that is there until this ends."""
    chosen = connection.settings_dict
    server = {"user": chosen["USER"], "password": chosen["PASSWORD"], "host": chosen["HOST"], "port": chosen["PORT"]}
    name = f"up_{uuid4().hex}"
    making = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
    with psycopg.connect(dbname="postgres", autocommit=True, **server) as postgresql:
        postgresql.execute(making)
        yield f"postgresql:///{name}?" + "&".join(f"{key}={server[key]}" for key in server)
        postgresql.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
