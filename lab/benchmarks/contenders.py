"""Who hands out tasks: the table of the contenders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path


class Database(StrEnum):
    POSTGRESQL = "PostgreSQL"
    SQLITE = "SQLite"
    VALKEY = "Valkey"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """How to ask the contender's database what is left and what was done: only real work counts."""

    left: str  # The number of tasks that can be claimed: SQL, or a command of Valkey.
    claimed: str = ""  # The number of claims so far; empty where no trace of them is kept.


STORE = Ledger(
    left="SELECT count(*) FROM tasks_app_task WHERE leased_since_ms = 0",
    claimed="SELECT count(*) FROM tasks_app_endedtask WHERE ending = 'claimed'",
)
RAW = Ledger(left="SELECT count(*) FROM raw_task WHERE leased_since_ms = 0")
JOBS = Ledger(left="SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'")
RESULTS = Ledger(
    left="SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status = 'READY'",
    claimed="SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status = 'SUCCESSFUL'",
)
QUEUE = Ledger(left="LLEN rq:queue:bench")
NO_LEDGER = Ledger(left="")  # Of those whose results are counted by themselves.


@dataclass(frozen=True, slots=True)
class Contender:
    name: str  # On the command line and in the tables.
    kind: str  # The name of several at once.
    title: str
    client: str = ""  # As in clients/__main__.py; empty: the one of its name.
    database: Database = Database.POSTGRESQL
    ledger: Ledger = NO_LEDGER
    server: tuple[str, ...] = ()  # The command of this store's server in front of the database.
    servers: int = 1  # So many of these; tasks come in by the last and are claimed from the first.
    has_grpc: bool = False  # These servers speak it too.
    most_clients: int = 128
    checkout: Path | None = None  # The folder of another revision of this store, whose servers these are.

    @property
    def client_name(self) -> str:
        return self.client or self.name

    def before(self, checkout: Path) -> Contender:
        """The same from another checkout."""
        title = f"{self.title}, from the checkout {checkout}"
        return replace(self, name=f"{self.name}{BEFORE}", title=title, checkout=checkout)


BEFORE = "-before"  # How the name of a contender from another checkout ends.
UP = ("up", "--port", "0")
SERVE = ("serve", "--workers", "1", "--port", "0")
SERVE_TWO = ("serve", "--workers", "2", "--port", "0")
SQLITE, VALKEY = Database.SQLITE, Database.VALKEY

PSYCOPG = Contender(
    "psycopg",
    kind="raw",
    title="PostgreSQL from psycopg, without history; each statement is a transaction",
    ledger=RAW,
)

writer = partial(Contender, kind="writer", client="writer", ledger=STORE)
WRITER = writer("writer", title="this store in the process of its callers, PostgreSQL")
WRITER_SQLITE = writer("writer-sqlite", title="this store in the process of its callers, SQLite", database=SQLITE)

rest = partial(Contender, kind="rest", client="rest", ledger=STORE)
UVICORN = rest("uvicorn", title="this store over HTTP from uvicorn (`serve --workers 1`), PostgreSQL", server=SERVE)
TWO_WORKERS = rest("two-workers", title="the same with two processes (`serve --workers 2`)", server=SERVE_TWO)
DAPHNE = rest("daphne", title="this store over HTTP from daphne (`up`), PostgreSQL", server=UP)
DAPHNE_SQLITE = rest(
    "daphne-sqlite", title="this store over HTTP from daphne (`up`), SQLite", database=SQLITE, server=UP
)
TWO_DAPHNES = rest(
    "two-daphnes",
    title="two such servers on one PostgreSQL; tasks are added through one and claimed through the other",
    server=UP,
    servers=2,
)

grpc = partial(Contender, kind="grpc", client="grpc", ledger=STORE, has_grpc=True)
GRPC_UVICORN = grpc(
    "grpc-uvicorn",
    title="this store over gRPC from the process of uvicorn (`serve --workers 1`), PostgreSQL",
    server=SERVE,
)
GRPC_DAPHNE = grpc("grpc-daphne", title="this store over gRPC from the process of daphne (`up`), PostgreSQL", server=UP)

peer = partial(Contender, kind="peers", most_clients=32)
PROCRASTINATE = peer("procrastinate", title="Procrastinate, PostgreSQL", ledger=JOBS)
DJANGO_TASKS = peer("django-tasks-db", title="django-tasks-db, PostgreSQL", ledger=RESULTS)
UNSAFE = "with Valkey's defaults: acknowledged changes are not on disk yet"
RQ = peer("rq", title=f"RQ without a fork per job, {UNSAFE}", database=VALKEY, ledger=QUEUE)

# Those whose own workers run jobs: as many processes as jobs at a time.
workers = partial(Contender, kind="workers")
JOBS_FORKED = workers(
    "jobs-forked",
    title="this store's worker (`work`) with a process per job, over HTTP from uvicorn, PostgreSQL",
    server=SERVE,
)
JOBS_REUSED = workers(
    "jobs-reused", title="the same with processes that run many jobs (`--jobs-per-process 1000`)", server=SERVE
)
COMMANDS_WORKER = workers(
    "commands-worker",
    title="this store's workers (`commands worker`), a process per command, over HTTP from uvicorn",
    server=(*SERVE, "--commands"),
)
# It has no database.
XARGS = Contender(
    "xargs",
    kind="raw",
    title="`xargs -P4 -n1 sh -c`, which stores nothing: the cost of shells on this machine",
    database=SQLITE,
)
PROCRASTINATE_WORKER = peer(
    "procrastinate-worker", title="Procrastinate's worker, four processes that run job after job, PostgreSQL"
)
DJANGO_TASKS_WORKER = peer(
    "django-tasks-db-worker", title="django-tasks-db's `db_worker`, four processes that run job after job, PostgreSQL"
)
RQ_WORKER = peer("rq-worker", title=f"RQ's worker, which forks for each job, {UNSAFE}", database=VALKEY)
