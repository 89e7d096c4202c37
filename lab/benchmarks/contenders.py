"""Who hands out tasks: the table of the contenders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial


class Database(StrEnum):
    POSTGRESQL = "PostgreSQL"
    SQLITE = "SQLite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """How to ask the contender's database what is left and what was done: only real work counts."""

    left: str  # The number of tasks that can be claimed.
    claimed: str = ""  # The number of claims so far; empty where no trace of them is kept.


STORE = Ledger(
    left="SELECT count(*) FROM tasks_app_task WHERE leased_since_ms = 0",
    claimed="SELECT count(*) FROM tasks_app_endedtask WHERE ending = 'claimed'",
)
RAW = Ledger(left="SELECT count(*) FROM raw_task WHERE leased_since_ms = 0")
NO_LEDGER = Ledger(left="")  # Of those whose results are counted by themselves.


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A worker that runs by itself. `left`, `done`: one of these queries, for the tasks that are or are not done."""

    share: int  # Of the tasks that the pace says, because some workers do many more.
    module: str = ""  # In programs/.
    left: str = ""
    done: str = ""
    packages: tuple[str, ...] = ()  # From the registry, with an interpreter of its own. Empty: it is this project's.
    command: tuple[str, ...] = ()  # Of this project; empty: importing the module works.
    has_process_each: bool = False  # A process for each task at a time.
    wakes: bool = True  # Whether it is also measured how soon an idle one starts.


@dataclass(frozen=True, slots=True)
class Contender:
    name: str  # On the command line and in the tables.
    title: str
    client: str = ""  # As in clients/__main__.py; empty: the one of its name.
    database: Database = Database.POSTGRESQL
    ledger: Ledger = NO_LEDGER
    server: tuple[str, ...] = ()  # The command of this store's server in front of the database.
    revision: str = ""  # Of this store, whose servers and workers these are; empty: as it is here.
    program: Program | None = None

    @property
    def client_name(self) -> str:
        return self.client or self.name

    @property
    def has_revisions(self) -> bool:
        """Whether it is this store, with a server or a worker that another revision has too."""
        program = self.program
        return bool(self.server or (program and program.module and not program.packages))

    def before(self, revision: str) -> Contender:
        """The same as it was at a revision."""
        return replace(
            self, name=f"{self.name}{BEFORE}", title=f"`{self.name}` at revision {revision}", revision=revision
        )


FIXED = "fc78c8b9"  # The revision beside which the store must not become slower, whatever is added.
BEFORE = "-before"  # How the name of a contender at an earlier revision ends.
UP = ("up",)
SERVE = ("serve", "--workers", "1")
SERVE_TWO = ("serve", "--workers", "2")
SQLITE = Database.SQLITE

PSYCOPG = Contender(
    "psycopg", title="PostgreSQL from psycopg, without history; each statement is a transaction", ledger=RAW
)

WRITER = Contender("writer", title="this store in the process of its callers, PostgreSQL", ledger=STORE)
rest = partial(Contender, client="rest", ledger=STORE)
UVICORN = rest("uvicorn", title="this store over HTTP from uvicorn (`serve --workers 1`), PostgreSQL", server=SERVE)
TWO_WORKERS = rest("two-workers", title="the same with two processes (`serve --workers 2`)", server=SERVE_TWO)
DAPHNE_SQLITE = rest(
    "daphne-sqlite", title="this store over HTTP from daphne (`up`), SQLite", database=SQLITE, server=UP
)
WITH_COMMANDS = (*SERVE, "--commands")
OWN_LEFT = "SELECT count(*) FROM tasks_app_task WHERE \"group\" = 'bench'"
OWN_JOBS_LEFT = "SELECT count(*) FROM tasks_app_task WHERE \"group\" = 'jobs/bench'"
WORK = ("work", "jobs_worker", "--queue", "bench", "--processes", "{at_once}")
FUNCTIONS_REST = Contender(
    "worker-rest",
    title="this store's `Worker` with coroutine functions, one process, over REST (`serve --workers 1`), PostgreSQL",
    server=SERVE,
    program=Program(module="functions_worker", left=OWN_LEFT, share=40),
)
FUNCTIONS_LOCAL = Contender(
    "worker-in-process",
    title="the same within a Django process, without a server (`LocalStore`)",
    program=Program(module="functions_worker", left=OWN_LEFT, share=40),
)
JOBS_REUSED = Contender(
    "jobs-reused",
    title="this store's `work` with processes that run many jobs (`--jobs-per-process 1000`), over REST",
    server=SERVE,
    program=Program(module="jobs_worker", left=OWN_JOBS_LEFT, share=5, command=(*WORK, "--jobs-per-process", "1000")),
)
JOBS_FORKED = Contender(
    "jobs-forked",
    title="this store's `work` with a process per job, over REST",
    server=SERVE,
    program=Program(module="jobs_worker", left=OWN_JOBS_LEFT, share=1, command=WORK),
)
COMMANDS_WORKER = Contender(
    "commands-worker",
    title="this store's `commands worker`, a shell per command, over REST",
    server=WITH_COMMANDS,
    program=Program(
        module="commands_worker",
        done="SELECT count(*) FROM tasks_app_task WHERE \"group\" = 'commands/bench/completed'",
        share=4,
        command=("commands", "worker", "bench"),
        has_process_each=True,
        wakes=False,
    ),
)
XARGS = Contender(
    "xargs",
    title="`xargs -P4 -n1 sh -c`, which stores nothing: the cost of shells on this machine",
    database=SQLITE,
    program=Program(share=4),
)
OBAN = Contender(
    "oban",
    title="Oban for Python, one process, PostgreSQL",
    program=Program(
        module="oban_worker",
        left="SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing')",
        share=10,
        packages=("oban", "uvloop"),
    ),
)
PGQUEUER = Contender(
    "pgqueuer",
    title="PgQueuer, one process that takes so many jobs in a batch, PostgreSQL",
    program=Program(
        module="pgqueuer_worker", left="SELECT count(*) FROM pgqueuer", share=40, packages=("pgqueuer[asyncpg]",)
    ),
)
PROCRASTINATE = Contender(
    "procrastinate",
    title="Procrastinate, a process for each job at a time, PostgreSQL",
    program=Program(
        module="procrastinate_worker",
        left="SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'",
        share=1,
        packages=("procrastinate", "psycopg[binary]"),
        has_process_each=True,
    ),
)
