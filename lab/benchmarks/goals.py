"""What the store has to reach on two cores, compared within one run of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .run import Results

# Finds the median of a figure, by scene, entry and figure.
Look = Callable[[str, str, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    text: str
    value: Callable[[Look], float]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def limit(self) -> str:
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"

    def is_met_by(self, value: float) -> bool:
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0)


def found(scene: str, entry: str, figure: str) -> Callable[[Look], float]:
    return lambda look: look(scene, entry, figure)


def ratio(scene: str, entry: str, other: str, figure: str = "per_second") -> Callable[[Look], float]:
    return lambda look: look(scene, entry, figure) / look(scene, other, figure)


def difference(scene: str, entry: str, other: str, figure: str) -> Callable[[Look], float]:
    return lambda look: look(scene, entry, figure) - look(scene, other, figure)


def of_page(page: str, figure: str = "p95_ms") -> Callable[[Look], float]:
    """Of a page of the console, from uvicorn."""
    return found("pages", f"{VISITED}, {page}", figure)


def most(*values: Callable[[Look], float]) -> Callable[[Look], float]:
    return lambda look: max(value(look) for value in values)


VISITED = "uvicorn, 1 client, 1000000 present"

GOALS = (
    Goal(
        text="the writer against single transactions from psycopg, 32 clients",
        value=ratio("cycles", "writer, 32 clients", "psycopg, 32 clients"),
        at_least=3.5,
    ),
    Goal(
        text="tasks claimed a second, 100 at a time, by the writer",
        value=found("batches", "writer, 8 clients", "per_second"),
        at_least=40_000,
    ),
    Goal(
        text="tasks claimed a second, 100 at a time, by REST on uvicorn",
        value=found("batches", "uvicorn, 8 clients", "per_second"),
        at_least=25_000,
    ),
    Goal(
        text="gRPC beside uvicorn against REST on uvicorn, 32 clients",
        value=ratio("cycles", "grpc-uvicorn, 32 clients", "uvicorn, 32 clients"),
        at_least=0.8,
    ),
    Goal(
        text="REST on uvicorn against single transactions from psycopg without HTTP, 32 clients",
        value=ratio("cycles", "uvicorn, 32 clients", "psycopg, 32 clients"),
        at_least=1.3,
    ),
    Goal(
        text="REST on uvicorn against Procrastinate, 32 clients",
        value=ratio("cycles", "uvicorn, 32 clients", "procrastinate, 32 clients"),
        at_least=10,
    ),
    Goal(
        text="REST on uvicorn against django-tasks-db, 32 clients",
        value=ratio("cycles", "uvicorn, 32 clients", "django-tasks-db, 32 clients"),
        at_least=10,
    ),
    Goal(
        text="REST on uvicorn, claim p99, ms, 32 clients",
        value=found("cycles", "uvicorn, 32 clients", "p99_ms"),
        at_most=10,
    ),
    Goal(
        text="REST on daphne with SQLite, cycles a second, 32 clients",
        value=found("cycles", "daphne-sqlite, 32 clients", "per_second"),
        at_least=1_800,
    ),
    Goal(
        text="REST on daphne with SQLite, claim p99, ms, 32 clients",
        value=found("cycles", "daphne-sqlite, 32 clients", "p99_ms"),
        at_most=50,
    ),
    Goal(
        text="one client alone: claim by the writer longer than the statement from psycopg, ms",
        value=difference("cycles", "writer, 1 client", "psycopg, 1 client", "p50_ms"),
        at_most=1.5,
    ),
    Goal(
        text="the writer with 1 000 000 tasks present against 10 000",
        value=ratio("many", "writer, 32 clients, 1000000 present", "writer, 32 clients"),
        at_least=0.8,
    ),
    Goal(
        text="the writer after five minutes of full load against the first",
        value=found("endurance", "writer, 32 clients", "kept"),
        at_least=0.9,
    ),
    Goal(
        text="REST on uvicorn after five minutes of full load against the first",
        value=found("endurance", "uvicorn, 32 clients", "kept"),
        at_least=0.9,
    ),
    Goal(
        text="wake-up in the same process, p95, ms",
        value=found("wakeups", "writer, 1 client", "p95_ms"),
        at_most=50,
    ),
    Goal(
        text="wake-up from another process, p95, ms",
        value=found("wakeups", "two-daphnes, 1 client", "p95_ms"),
        at_most=150,
    ),
    Goal(
        text="memory of a waiting claim at a server, its connection included, kB",
        value=found("waiters", "uvicorn, 1 client", "kb_each"),
        at_most=20,
    ),
    Goal(
        text="all waiting claims answered, s",
        value=found("waiters", "uvicorn, 1 client", "all_woken_s"),
        at_most=2,
    ),
    *(
        Goal(
            text=f"jobs a second, {how}, against {peer}, 4 at a time",
            value=ratio("jobs", f"{ours}, 4 clients", f"{peer}-worker, 4 clients"),
            at_least=3,
        )
        for ours, how in (("jobs-forked", "a process for each"), ("jobs-reused", "processes that are reused"))
        for peer in ("django-tasks-db", "procrastinate")
    ),
    Goal(
        text="from enqueuing a job to its function in an idle worker, longest, ms",
        value=found("jobs", "jobs-forked, 4 clients", "p100_ms"),
        at_most=200,
    ),
    Goal(
        text="shell commands that do nothing, a second, 4 workers, lists of 50",
        value=found("commands", "commands-worker, 4 clients", "per_second"),
        at_least=300,
    ),
    Goal(
        text="what an open overview asks for, the slowest request, p95, ms",
        value=most(*(of_page(page) for page in ("overview", "attention strip", "chart, 1 h", "chart, 30 d"))),
        at_most=300,
    ),
    Goal(
        text="first, thousandth and last page of a group of 600 000, the slowest, p95, ms",
        value=most(*(of_page(page) for page in ("largest group", "its page 1000", "its last page"))),
        at_most=500,
    ),
    Goal(
        text="tasks that are missing, or shown twice, on a thousand pages",
        value=most(found("walk", VISITED, "missing"), found("walk", VISITED, "twice")),
        at_most=0,
    ),
    Goal(text="search by id, p95, ms", value=of_page("search: id"), at_most=200),
    Goal(text="search by group and error, p95, ms", value=of_page("search: group:x error:timeout"), at_most=500),
    Goal(text="search in the data, p95, ms", value=of_page("search: data.user:42"), at_most=1_000),
    Goal(text="answer to who purges 100 000 tasks, ms", value=found("bulk", VISITED, "answer_ms"), at_most=1_000),
    Goal(text="claims beside that against without, p95, times", value=found("bulk", VISITED, "times"), at_most=2),
    Goal(text="first paint of the overview, ms", value=found("screen", VISITED, "paint_ms"), at_most=1_000),
    Goal(
        text="from a commit to its number on an open page, p95, ms",
        value=found("screen", VISITED, "shown_p95_ms"),
        at_most=1_000,
    ),
    Goal(text="tasks over 50 ms on a page that is open long", value=found("open", VISITED, "long_tasks"), at_most=0),
    Goal(
        text="memory of its scripts at the end against the beginning",
        value=lambda look: look("open", VISITED, "after_mb") / look("open", VISITED, "before_mb"),
        at_most=1.5,
    ),
)


def measured(results: Results) -> Iterator[tuple[Goal, float]]:
    """The goals of which this run can say something, and what it says."""
    for goal in GOALS:
        try:
            yield goal, goal.value(results.median)
        except LookupError:
            continue  # A part of it was not chosen, or could not be measured.
