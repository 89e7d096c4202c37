"""Who hands out tasks: the table of the contenders."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str  # On the command line and in the tables.
    kind: str  # The name of several at once.
    title: str
    client: str  # As in clients/__main__.py.
    database: Database
    ledger: Ledger = NO_LEDGER
    server: tuple[str, ...] = ()  # The command of this store's server in front of the database.
    servers: int = 1  # So many of these; tasks come in by the last and are claimed from the first.
    has_grpc: bool = False  # These servers speak it too.
    most_clients: int = 128


UP = ("up", "--port", "0")
SERVE = ("serve", "--workers", "1", "--port", "0")

PSYCOPG = Contender(
    name="psycopg",
    kind="raw",
    title="PostgreSQL from psycopg, without history; each statement is a transaction",
    client="psycopg",
    database=Database.POSTGRESQL,
    ledger=RAW,
)
PGBENCH = Contender(
    name="pgbench",
    kind="raw",
    title="the same statements from pgbench, a program in C; its times are those of whole cycles",
    client="pgbench",
    database=Database.POSTGRESQL,
    ledger=RAW,
)
WRITER = Contender(
    name="writer",
    kind="writer",
    title="this store in the process of its callers, PostgreSQL",
    client="writer",
    database=Database.POSTGRESQL,
    ledger=STORE,
)
WRITER_SQLITE = Contender(
    name="writer-sqlite",
    kind="writer",
    title="this store in the process of its callers, SQLite",
    client="writer",
    database=Database.SQLITE,
    ledger=STORE,
)
UVICORN = Contender(
    name="uvicorn",
    kind="rest",
    title="this store over HTTP from uvicorn (`serve --workers 1`), PostgreSQL",
    client="rest",
    database=Database.POSTGRESQL,
    ledger=STORE,
    server=SERVE,
)
DAPHNE = Contender(
    name="daphne",
    kind="rest",
    title="this store over HTTP from daphne (`up`), PostgreSQL",
    client="rest",
    database=Database.POSTGRESQL,
    ledger=STORE,
    server=UP,
)
DAPHNE_SQLITE = Contender(
    name="daphne-sqlite",
    kind="rest",
    title="this store over HTTP from daphne (`up`), SQLite",
    client="rest",
    database=Database.SQLITE,
    ledger=STORE,
    server=UP,
)
TWO_DAPHNES = Contender(
    name="two-daphnes",
    kind="rest",
    title="two of these servers on one PostgreSQL: tasks come in by one and are claimed from the other",
    client="rest",
    database=Database.POSTGRESQL,
    ledger=STORE,
    server=UP,
    servers=2,
)
GRPC_UVICORN = Contender(
    name="grpc-uvicorn",
    kind="grpc",
    title="this store over gRPC from the process of uvicorn (`serve --workers 1`), PostgreSQL",
    client="grpc",
    database=Database.POSTGRESQL,
    ledger=STORE,
    server=SERVE,
    has_grpc=True,
)
GRPC_DAPHNE = Contender(
    name="grpc-daphne",
    kind="grpc",
    title="this store over gRPC from the process of daphne (`up`), PostgreSQL",
    client="grpc",
    database=Database.POSTGRESQL,
    ledger=STORE,
    server=UP,
    has_grpc=True,
)
PROCRASTINATE = Contender(
    name="procrastinate",
    kind="peers",
    title="Procrastinate, PostgreSQL",
    client="procrastinate",
    database=Database.POSTGRESQL,
    ledger=JOBS,
    most_clients=32,
)
DJANGO_TASKS = Contender(
    name="django-tasks-db",
    kind="peers",
    title="django-tasks-db, PostgreSQL",
    client="django-tasks-db",
    database=Database.POSTGRESQL,
    ledger=RESULTS,
    most_clients=32,
)
RQ = Contender(
    name="rq",
    kind="peers",
    title="RQ without a fork for each job, Valkey as it comes: what was answered is not on the disk yet",
    client="rq",
    database=Database.VALKEY,
    ledger=QUEUE,
    most_clients=32,
)

# Those whose own workers run jobs: as many processes as jobs at a time.
JOBS_FORKED = Contender(
    name="jobs-forked",
    kind="workers",
    title="this store's worker (`work`) with a process for each job, over HTTP from uvicorn, PostgreSQL",
    client="jobs-forked",
    database=Database.POSTGRESQL,
    server=SERVE,
)
JOBS_REUSED = Contender(
    name="jobs-reused",
    kind="workers",
    title="the same with processes that run many jobs (`--jobs-per-process 1000`)",
    client="jobs-reused",
    database=Database.POSTGRESQL,
    server=SERVE,
)
COMMANDS_WORKER = Contender(
    name="commands-worker",
    kind="workers",
    title="this store's workers (`commands worker`), a process for each command at a time, over HTTP from uvicorn",
    client="commands-worker",
    database=Database.POSTGRESQL,
    server=(*SERVE, "--commands"),
)
XARGS = Contender(
    name="xargs",
    kind="raw",
    title="`xargs -P4 -n1 sh -c`, which keeps nothing: what shells cost on this machine",
    client="xargs",
    database=Database.SQLITE,  # It has none.
)
PROCRASTINATE_WORKER = Contender(
    name="procrastinate-worker",
    kind="peers",
    title="Procrastinate's worker, a process for each job at a time, PostgreSQL",
    client="procrastinate-worker",
    database=Database.POSTGRESQL,
)
DJANGO_TASKS_WORKER = Contender(
    name="django-tasks-db-worker",
    kind="peers",
    title="django-tasks-db's `db_worker`, a process for each job at a time, PostgreSQL",
    client="django-tasks-db-worker",
    database=Database.POSTGRESQL,
)
RQ_WORKER = Contender(
    name="rq-worker",
    kind="peers",
    title="RQ's worker, which forks for each job, Valkey as it comes: what was answered is not on the disk yet",
    client="rq-worker",
    database=Database.VALKEY,
)
