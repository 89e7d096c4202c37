"""A store for each test, on the database that this run is for."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from .harness import Store

IS_POSTGRESQL = connection.vendor == "postgresql"

# What has no meaning on the database of this run.
collect_ignore = [] if IS_POSTGRESQL else ["test_up_on_postgresql.py", "test_serve.py"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with own_store(tmp_path) as store:
        yield store


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture(params=["up", *(["serve --workers 1"] if IS_POSTGRESQL else [])])
def command(request: pytest.FixtureRequest) -> str:
    """The commands that start a server on the database of this run.

    With one worker, as with `up`, what one connection gets answered says what has become of another one.
    """
    return str(request.param)


@contextmanager
def own_store(parent: Path) -> Iterator[Store]:
    if not IS_POSTGRESQL:
        yield Store(parent)
        return
    chosen = connection.settings_dict
    server = {"user": chosen["USER"], "password": chosen["PASSWORD"], "host": chosen["HOST"], "port": chosen["PORT"]}
    name = f"up_{uuid4().hex}"
    with psycopg.connect(dbname="postgres", autocommit=True, **server) as postgresql:
        postgresql.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield Store(parent, f"postgresql:///{name}?" + "&".join(f"{key}={server[key]}" for key in server))
        postgresql.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
