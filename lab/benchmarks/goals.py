"""The goals of the store on two cores. Each compares figures of one run of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from .contenders import BEFORE
from .run import Results

# Finds the median of a figure, by scene, entry and figure.
Look = Callable[[str, str, str], float]
Value = Callable[[Look], float]


@dataclass(frozen=True, slots=True)
class Goal:
    """`limit`: `>= 1.5` or `<= 6`."""

    text: str
    value: Value
    limit: str

    def is_met_by(self, value: float) -> bool:
        sign, _, number = self.limit.partition(" ")
        return value >= float(number) if sign == ">=" else value <= float(number)


def found(scene: str, entry: str, figure: str) -> Value:
    return lambda look: look(scene, entry, figure)


def ratio(scene: str, entry: str, other: str, figure: str = "per_second") -> Value:
    return lambda look: look(scene, entry, figure) / look(scene, other, figure)


def beside_psycopg(entry: str, clients: int = 32) -> Value:
    return ratio(PSYCOPG, f"{entry}, {clients} clients", f"psycopg, {clients} clients")


def beside(worker: str, other: str) -> Value:
    """Compare the rates of workers. Each is named with how many tasks it has at a time."""
    return ratio(WORKERS, f"{worker} clients", f"{other} clients")


PSYCOPG, WORKERS = "peers-psycopg", "workers"
SATURATED = (PSYCOPG, "uvicorn, 32 clients")
PEERS = ("psycopg", "oban", "pgqueuer", "procrastinate", "xargs")
PARTS = ("worker", "server", "database")
# Processor time for each request or task, compared with the earlier revision: the noise of a run is within this.
NO_MORE = "<= 1.03"


def no_dearer(text: str, scene: str, entry: str, *parts: str) -> Iterator[Goal]:
    """Yield the goals that a contender uses no more processor time than at the earlier revision."""
    contender, _, load = entry.partition(",")
    for part in parts:
        value = ratio(scene, entry, f"{contender}{BEFORE},{load}", f"{part}_us")
        yield Goal(f"{text}: CPU of {part}, compared with the earlier revision", value, NO_MORE)


GOALS = (
    Goal("REST on uvicorn, 32 connections, compared with psycopg", beside_psycopg("uvicorn"), ">= 1.5"),
    Goal("two workers on one group, compared with psycopg", beside_psycopg("two-workers"), ">= 1.7"),
    Goal("two workers compared with one", ratio(PSYCOPG, "two-workers, 32 clients", "uvicorn, 32 clients"), ">= 1"),
    *no_dearer("REST, 32 connections", PSYCOPG, "uvicorn, 32 clients", "server", "database"),
    *no_dearer("REST, 8 connections", PSYCOPG, "uvicorn, 8 clients", "server", "database"),
    *no_dearer("REST, 1 connection", PSYCOPG, "uvicorn, 1 client", "server", "database"),
    *no_dearer("REST, two workers", PSYCOPG, "two-workers, 32 clients", "server", "database"),
    *no_dearer("REST with keys", "keys", "uvicorn, 32 clients, keys", "server", "database"),
    *no_dearer("REST, 100 at a time", "batches", "uvicorn, 8 clients", "server", "database"),
    *no_dearer("SQLite (`up`), 32 connections", PSYCOPG, "daphne-sqlite, 32 clients", "server"),
    *no_dearer("SQLite with keys", "keys", "daphne-sqlite, 32 clients, keys", "server"),
    *no_dearer("SQLite, 100 at a time", "batches", "daphne-sqlite, 8 clients", "server"),
    *no_dearer("a worker over REST, 32 at once", WORKERS, "worker-rest, 32 clients", *PARTS),
    *no_dearer("a worker over REST, 100 at once", WORKERS, "worker-rest, 100 clients", *PARTS),
    *no_dearer("a worker in process", WORKERS, "worker-in-process, 100 clients", "worker", "database"),
    *no_dearer("jobs, processes that run many", WORKERS, "jobs-reused, 4 clients", *PARTS),
    *no_dearer("jobs, a process for each", WORKERS, "jobs-forked, 4 clients", *PARTS),
    *no_dearer("shell commands", WORKERS, "commands-worker, 4 clients", *PARTS),
    Goal(
        "claim p99 at a steady 1 000 cycles/s, 32 connections, ms",
        found("steady", "uvicorn, 32 clients, 1000 a second", "p99_ms"),
        "<= 6",
    ),
    Goal(
        "claim p99 at saturation, divided by the mean",
        lambda look: look(*SATURATED, "p99_ms") / look(*SATURATED, "mean_ms"),
        "<= 2.5",
    ),
    Goal("in process, 32 callers, compared with psycopg", beside_psycopg("writer"), ">= 4"),
    Goal(
        "one in-process caller: claim minus bare statement, p50, ms",
        lambda look: look(PSYCOPG, "writer, 1 client", "p50_ms") - look(PSYCOPG, "psycopg, 1 client", "p50_ms"),
        "<= 0.5",
    ),
    Goal(
        "`up` (daphne, SQLite), 32 connections: claim p99, ms",
        found(PSYCOPG, "daphne-sqlite, 32 clients", "p99_ms"),
        "<= 30",
    ),
    Goal(
        "100 at a time, REST on uvicorn, compared with psycopg",
        ratio("batches", "uvicorn, 8 clients", "psycopg, 8 clients"),
        ">= 0.6",
    ),
    Goal(
        "100 at a time, in process, compared with psycopg",
        ratio("batches", "writer, 8 clients", "psycopg, 8 clients"),
        ">= 0.5",
    ),
    Goal(
        "requests with `Idempotency-Key`, compared with those without",
        ratio("keys", "uvicorn, 32 clients, keys", "uvicorn, 32 clients"),
        ">= 0.9",
    ),
    Goal("log (WAL) per change, including page copies, bytes", found(*SATURATED, "log_bytes_each"), "<= 1500"),
    Goal("a worker over REST, 32 at once, compared with Oban", beside("worker-rest, 32", "oban, 32"), ">= 2.2"),
    Goal("the same, 100 at once, compared with PgQueuer", beside("worker-rest, 100", "pgqueuer, 100"), ">= 1.05"),
    Goal(
        "a worker in process, 100 at once, compared with PgQueuer",
        beside("worker-in-process, 100", "pgqueuer, 100"),
        ">= 1.25",
    ),
    Goal(
        "jobs, processes that run many, 4 at a time, compared with Procrastinate",
        beside("jobs-reused, 4", "procrastinate, 4"),
        ">= 8",
    ),
    Goal("the same, compared with Oban", beside("jobs-reused, 4", "oban, 32"), ">= 1"),
    Goal(
        "jobs, a process for each, 4 at a time, compared with Procrastinate",
        beside("jobs-forked, 4", "procrastinate, 4"),
        ">= 1",
    ),
    Goal("empty shell commands, 4 workers, compared with xargs", beside("commands-worker, 4", "xargs, 4"), ">= 1.1"),
    Goal(
        "from adding a task to its start in an idle worker, p50, ms",
        found(WORKERS, "worker-rest, 32 clients", "p50_ms"),
        "<= 5",
    ),
    Goal("the same, p95, ms", found(WORKERS, "worker-rest, 32 clients", "p95_ms"), "<= 12"),
)


def measured(results: Results) -> Iterator[tuple[Goal, float, float | None]]:
    """The goals of which this run can say something, what it says, and what the earlier revision reaches."""

    def before(scene: str, entry: str, figure: str) -> float:
        """The figure of the earlier revision, where that takes part; the clients are those of now."""
        contender, _, load = entry.partition(",")
        return results.median(scene, entry if contender in PEERS else f"{contender}{BEFORE},{load}", figure)

    for goal in GOALS:
        with suppress(LookupError):  # A part of it was not chosen, or could not be measured.
            value, value_before = goal.value(results.median), None
            with suppress(LookupError):
                value_before = goal.value(before)
            yield goal, value, value_before
