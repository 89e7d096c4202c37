"""The scenes of the benchmark: each is measured with several contenders and becomes a table of the report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product

from .contenders import (
    COMMANDS_WORKER,
    DAPHNE_SQLITE,
    FUNCTIONS_LOCAL,
    FUNCTIONS_REST,
    JOBS_FORKED,
    JOBS_REUSED,
    OBAN,
    PGQUEUER,
    PROCRASTINATE,
    PSYCOPG,
    TWO_WORKERS,
    UVICORN,
    WRITER,
    XARGS,
    Contender,
)
from .figures import Figures
from .measuring import Entry, tasks_handed_out
from .pace import Load, Pace, Verb
from .places import Place
from .workers import workers

ALL = (PSYCOPG, WRITER, UVICORN, DAPHNE_SQLITE)
# How many tasks at a time each worker has.
WORKERS_AT_ONCE = (
    *((contender, 32) for contender in (FUNCTIONS_REST, OBAN)),
    *((contender, 100) for contender in (FUNCTIONS_REST, FUNCTIONS_LOCAL, PGQUEUER)),
    *((contender, 4) for contender in (JOBS_REUSED, JOBS_FORKED, PROCRASTINATE, COMMANDS_WORKER, XARGS)),
)
BUSY = 32  # Clients, where the number of clients is not the question.
STEADY = 1_000  # Tasks a second, of all clients together.


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    figure: str
    digits: int = 0
    has_spread: bool = False  # Also shows the least and the most of the rounds.

    def shown(self, value: float) -> str:
        return f"{value:,.{self.digits}f}".replace(",", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    name: str  # On the command line.
    title: str
    measure: Callable[[Entry, Place, Pace], Figures]
    entries: Sequence[Entry]  # Those with the same number of clients are measured in turn.
    columns: Sequence[Column]
    is_quick: bool = False  # Part of `bench --quick`.
    stage: str = ""  # Scenes on one stage that follow each other share their places.
    has_goals: bool = False  # Part of `bench goals`.
    is_in_turn: bool = False  # All entries, whatever their numbers of clients.

    def is_named_by(self, words: Collection[str]) -> bool:
        return self.name in words or (self.has_goals and GOALS in words)


GOALS = "goals"  # The scenes of which the goals are about.
SPEED = "speed"  # Their stage, where they have one.
WORKERS = "workers"
COSTS = (
    Column("server, µs per request", "server_us"),
    Column("database", "database_us"),
    Column("client, cores", "client_cores", 2),
    Column("MB", "memory_mb"),
)
CLAIMS = (Column("claim p50, ms", "p50_ms", 2), Column("p99", "p99_ms", 2))
RATES = (Column("tasks per second", "per_second", has_spread=True), *CLAIMS, *COSTS)


def scenes(pace: Pace, against: str = "") -> list[Scene]:
    """Return all scenes. `against`: the revision that is also measured in the scenes of `goals`."""

    def entries(load: Load, *contenders: Contender) -> list[Entry]:
        """Each contender under the load, and beside each of ours the same at the revision."""
        return [
            Entry(contender=one, load=load)
            for contender in contenders
            for one in (contender, *([contender.before(against)] if against and contender.has_revisions else []))
        ]

    return [*beside_psycopg(entries), cycles(pace), worker_rates(entries)]


def beside_psycopg(entries: Callable[..., list[Entry]]) -> list[Scene]:
    """What the goals of speed are about, all of it in one run."""
    batch = Load(clients=8, batch=100, verb=Verb.CLAIM)
    return [
        Scene(
            name="peers-psycopg",
            title="Claim a task, then delete it, compared with psycopg (one transaction per statement)",
            measure=tasks_handed_out,
            entries=[
                *entries(Load(clients=BUSY), PSYCOPG, UVICORN, TWO_WORKERS, WRITER, DAPHNE_SQLITE),
                *entries(Load(clients=8), UVICORN),
                *entries(Load(clients=1), PSYCOPG, UVICORN, WRITER),
            ],
            columns=(
                *RATES[:2],
                Column("mean", "mean_ms", 2),
                *RATES[2:],
                Column("bytes of log per change", "log_bytes_each"),
            ),
            stage=SPEED,
            has_goals=True,
        ),
        Scene(
            name="steady",
            title="The same at a steady 1 000 tasks per second",
            measure=tasks_handed_out,
            entries=entries(Load(clients=BUSY, rate=STEADY), UVICORN),
            columns=(Column("of the tasks that were due", "kept", 2), *RATES),
            stage=SPEED,
            has_goals=True,
        ),
        Scene(
            name="keys",
            title="Requests with and without an idempotency key",
            measure=tasks_handed_out,
            entries=[
                *entries(Load(clients=BUSY), UVICORN, DAPHNE_SQLITE),
                *entries(Load(clients=BUSY, with_keys=True), UVICORN, DAPHNE_SQLITE),
            ],
            columns=RATES,
            stage=SPEED,
            has_goals=True,
        ),
        Scene(
            name="batches",
            title="Claim 100 tasks at a time",
            measure=tasks_handed_out,
            entries=entries(batch, PSYCOPG, WRITER, UVICORN, DAPHNE_SQLITE),
            columns=RATES,
            is_quick=True,
            stage=SPEED,
            has_goals=True,
        ),
    ]


def cycles(pace: Pace) -> Scene:
    return Scene(
        name="cycles",
        title="Claim a task, then delete it",
        measure=tasks_handed_out,
        entries=[
            Entry(contender=contender, load=Load(clients=clients)) for clients, contender in product(pace.clients, ALL)
        ],
        columns=RATES,
        is_quick=True,
    )


def worker_rates(entries: Callable[..., list[Entry]]) -> Scene:
    """How fast workers do empty tasks, ours and those of others."""
    return Scene(
        name=WORKERS,
        title="Empty tasks, by each contender's own workers",
        measure=workers,
        entries=[
            entry for contender, at_once in WORKERS_AT_ONCE for entry in entries(Load(clients=at_once), contender)
        ],
        columns=(
            Column("tasks per second", "per_second", has_spread=True),
            Column("workers, µs per task", "worker_us"),
            Column("server", "server_us"),
            Column("database", "database_us"),
            Column("started by an idle one after, p50, ms", "p50_ms", 1),
            Column("p95", "p95_ms", 1),
        ),
        is_in_turn=True,
        has_goals=True,
    )


def names(found: Sequence[Scene]) -> list[str]:
    """All words by which a part can be chosen: scenes, those with goals, contenders."""
    contenders = (entry.contender.name for scene in found for entry in scene.entries)
    return list(dict.fromkeys([*(scene.name for scene in found), GOALS, *contenders]))


def chosen(found: Sequence[Scene], words: Collection[str]) -> list[Scene]:
    """The scenes that the words name, with the contenders that they name.

    Where no word names a scene all are meant, and where none names a contender all of these.
    """
    named = [scene for scene in found if scene.is_named_by(words)] or found
    wanted = {word for word in words if not any(scene.is_named_by([word]) for scene in found)}
    of_scenes = [
        replace(scene, entries=[each for each in scene.entries if not wanted or each.contender.name in wanted])
        for scene in named
    ]
    return [scene for scene in of_scenes if scene.entries]
