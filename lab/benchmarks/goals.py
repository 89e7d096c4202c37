"""The goals of the store on two cores. Each compares figures of one run of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

from .contenders import BEFORE
from .run import Results

# Finds the median of a figure, by scene, entry and figure.
Look = Callable[[str, str, str], float]
Value = Callable[[Look], float]


@dataclass(frozen=True, slots=True)
class Goal:
    text: str
    value: Value
    _: KW_ONLY
    at_least: float | None = None
    at_most: float | None = None

    @property
    def limit(self) -> str:
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"

    def is_met_by(self, value: float) -> bool:
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0)


def found(scene: str, entry: str, figure: str) -> Value:
    return lambda look: look(scene, entry, figure)


def ratio(scene: str, entry: str, other: str, figure: str = "per_second") -> Value:
    return lambda look: look(scene, entry, figure) / look(scene, other, figure)


def difference(scene: str, entry: str, other: str, figure: str) -> Value:
    return lambda look: look(scene, entry, figure) - look(scene, other, figure)


def beside_psycopg(entry: str, clients: int = 32) -> Value:
    return ratio(PSYCOPG, f"{entry}, {clients} clients", f"psycopg, {clients} clients")


def beside(worker: str, other: str) -> Value:
    """Compare the rates of workers. Each is named with how many tasks it has at a time."""
    return ratio("workers", f"{worker} clients", f"{other} clients")


def against(entry: str, figure: str = "per_second") -> Value:
    """Return the ratio to the same figure of the other checkout."""
    contender, _, load = entry.partition(",")
    return ratio(PSYCOPG, entry, f"{contender}{BEFORE},{load}", figure)


PSYCOPG = "peers-psycopg"

GOALS = (
    Goal("REST on uvicorn, 32 connections, compared with psycopg", beside_psycopg("uvicorn"), at_least=1.5),
    Goal("the same, 8 connections, compared with the earlier revision", against("uvicorn, 8 clients"), at_least=2.5),
    Goal("the same, 1 connection, compared with the earlier revision", against("uvicorn, 1 client"), at_least=2),
    Goal("two workers on one group, compared with psycopg", beside_psycopg("two-workers"), at_least=1.7),
    Goal("two workers compared with one", ratio(PSYCOPG, "two-workers, 32 clients", "uvicorn, 32 clients"), at_least=1),
    Goal(
        "server, CPU per request, compared with the earlier revision",
        against("uvicorn, 32 clients", "server_us"),
        at_most=0.25,
    ),
    Goal(
        "database, CPU per request, compared with the earlier revision",
        against("uvicorn, 32 clients", "database_us"),
        at_most=0.55,
    ),
    Goal(
        "claim p99 at a steady 1 000 cycles/s, 32 connections, ms",
        found("steady", "uvicorn, 32 clients, 1000 a second", "p99_ms"),
        at_most=6,
    ),
    Goal(
        "claim p99 at saturation, divided by the mean",
        lambda look: look(PSYCOPG, "uvicorn, 32 clients", "p99_ms") / look(PSYCOPG, "uvicorn, 32 clients", "mean_ms"),
        at_most=2.5,
    ),
    Goal("in process, 32 callers, compared with psycopg", beside_psycopg("writer"), at_least=4),
    Goal(
        "one in-process caller: claim minus bare statement, p50, ms",
        difference(PSYCOPG, "writer, 1 client", "psycopg, 1 client", "p50_ms"),
        at_most=0.5,
    ),
    Goal(
        "`up` (daphne, SQLite), 32 connections, compared with the earlier revision",
        against("daphne-sqlite, 32 clients"),
        at_least=2.5,
    ),
    Goal("the same, claim p99, ms", found(PSYCOPG, "daphne-sqlite, 32 clients", "p99_ms"), at_most=30),
    Goal(
        "100 at a time, REST on uvicorn, compared with psycopg",
        ratio("batches", "uvicorn, 8 clients", "psycopg, 8 clients"),
        at_least=0.5,
    ),
    Goal(
        "100 at a time, in process, compared with psycopg",
        ratio("batches", "writer, 8 clients", "psycopg, 8 clients"),
        at_least=0.5,
    ),
    Goal(
        "requests with `Idempotency-Key`, compared with those without",
        ratio("keys", "uvicorn, 32 clients, keys", "uvicorn, 32 clients"),
        at_least=0.9,
    ),
    Goal(
        "log (WAL) per change, including page copies, bytes",
        found(PSYCOPG, "uvicorn, 32 clients", "log_bytes_each"),
        at_most=1_500,
    ),
    Goal("a worker over REST, 32 at once, compared with Oban", beside("worker-rest, 32", "oban, 32"), at_least=2),
    Goal("the same, 100 at once, compared with PgQueuer", beside("worker-rest, 100", "pgqueuer, 100"), at_least=0.9),
    Goal(
        "a worker in process, 100 at once, compared with PgQueuer",
        beside("worker-in-process, 100", "pgqueuer, 100"),
        at_least=1,
    ),
    Goal(
        "jobs, processes that run many, 4 at a time, compared with Procrastinate",
        beside("jobs-reused, 4", "procrastinate, 4"),
        at_least=8,
    ),
    Goal("the same, compared with Oban", beside("jobs-reused, 4", "oban, 32"), at_least=1),
    Goal(
        "jobs, a process for each, 4 at a time, compared with Procrastinate",
        beside("jobs-forked, 4", "procrastinate, 4"),
        at_least=1,
    ),
    Goal(
        "empty shell commands, 4 workers, compared with xargs",
        beside("commands-worker, 4", "xargs, 4"),
        at_least=1.1,
    ),
    Goal(
        "from adding a task to its start in an idle worker, p50, ms",
        found("workers", "worker-rest, 32 clients", "p50_ms"),
        at_most=5,
    ),
    Goal("the same, p95, ms", found("workers", "worker-rest, 32 clients", "p95_ms"), at_most=12),
)


def measured(results: Results) -> Iterator[tuple[Goal, float, float | None]]:
    """The goals of which this run can say something, what it says, and what the other checkout reaches."""

    def before(scene: str, entry: str, figure: str) -> float:
        """The figure of the other checkout, where that takes part; it has no clients of its own."""
        contender, _, load = entry.partition(",")
        return results.median(scene, entry if contender == "psycopg" else f"{contender}{BEFORE},{load}", figure)

    for goal in GOALS:
        with suppress(LookupError):  # A part of it was not chosen, or could not be measured.
            value, value_before = goal.value(results.median), None
            with suppress(LookupError):
                value_before = goal.value(before)
            yield goal, value, value_before
