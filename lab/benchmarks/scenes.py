"""The scenes of the benchmark: each is measured with several contenders and becomes a table of the report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from .console.bulk import purge_and_undo
from .console.pages import PAGES, page_times, walk
from .console.screen import first_sight, open_long
from .console.visitor import GROUPS
from .contenders import (
    COMMANDS_WORKER,
    DAPHNE,
    DAPHNE_SQLITE,
    DJANGO_TASKS,
    FUNCTIONS_LOCAL,
    FUNCTIONS_REST,
    GRPC_DAPHNE,
    GRPC_UVICORN,
    JOBS_FORKED,
    JOBS_REUSED,
    OBAN,
    PGQUEUER,
    PROCRASTINATE,
    PSYCOPG,
    TWO_DAPHNES,
    TWO_WORKERS,
    UVICORN,
    WRITER,
    WRITER_SQLITE,
    XARGS,
    Contender,
)
from .figures import Figures
from .measuring import Entry, endurance, tasks_handed_out, waiters, wakeups
from .pace import Load, Pace, Verb
from .places import Place
from .workers import workers

CONSOLES = (UVICORN, DAPHNE_SQLITE)
OURS = (WRITER, UVICORN, DAPHNE, WRITER_SQLITE, DAPHNE_SQLITE)
ALL = (PSYCOPG, *OURS, GRPC_UVICORN, GRPC_DAPHNE)
# How many tasks at a time each worker has.
WORKERS_AT_ONCE = (
    *((contender, 32) for contender in (FUNCTIONS_REST, OBAN)),
    *((contender, 100) for contender in (FUNCTIONS_REST, FUNCTIONS_LOCAL, PGQUEUER)),
    *((contender, 4) for contender in (JOBS_REUSED, JOBS_FORKED, PROCRASTINATE, DJANGO_TASKS, COMMANDS_WORKER, XARGS)),
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
    rounds: int | None = None  # None: as many as the pace says.
    stage: str = ""  # Scenes on one stage that follow each other share their places.
    needs_browser: bool = False
    is_in_turn: bool = False  # All entries, whatever their numbers of clients.

    def is_named_by(self, words: Collection[str]) -> bool:
        return self.name in words or self.stage in words


SPEED = "goals"  # The stage on which the goals of speed are measured.
CONSOLE = "console"  # The stage on which people look.
WORKERS = "workers"
COSTS = (
    Column("server, µs per request", "server_us"),
    Column("database", "database_us"),
    Column("client, cores", "client_cores", 2),
    Column("MB", "memory_mb"),
)
CLAIMS = (
    Column("claim p50, ms", "p50_ms", 2),
    Column("p99", "p99_ms", 2),
)
RATES = (Column("tasks per second", "per_second", has_spread=True), *CLAIMS, *COSTS)


def scenes(pace: Pace, against: Path | None = None) -> list[Scene]:
    """Return all scenes. `against`: another checkout, whose servers are also measured in the scenes of `goals`."""
    ours = OURS[:2] if pace.is_short else OURS
    console = Load(clients=1, present=pace.many)
    return [
        *beside_psycopg(pace, against),
        *hand_outs(pace, ours),
        *long_runs(ours),
        *wakes(ours),
        worker_rates(),
        *console_scenes(console),
    ]


def beside_psycopg(pace: Pace, against: Path | None) -> list[Scene]:
    """What the goals of speed are about, all of it in one run."""

    def entries(load: Load, *contenders: Contender) -> list[Entry]:
        """Each contender under the load, and beside each server of ours the same from the other checkout."""
        return [
            Entry(contender=one, load=load)
            for contender in contenders
            for one in (contender, *([contender.before(against)] if against and contender.server else []))
        ]

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
                Column("of which page copies", "log_image_bytes_each"),
            ),
            stage=SPEED,
        ),
        Scene(
            name="steady",
            title="The same at a steady 1 000 tasks per second",
            measure=tasks_handed_out,
            entries=entries(Load(clients=BUSY, rate=STEADY), UVICORN),
            columns=(Column("of the tasks that were due", "kept", 2), *RATES),
            stage=SPEED,
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
        ),
        Scene(
            name="batches",
            title="Claim 100 tasks at a time",
            measure=tasks_handed_out,
            entries=entries(batch, PSYCOPG, WRITER, UVICORN, DAPHNE_SQLITE),
            columns=RATES,
            is_quick=True,
            stage=SPEED,
        ),
        Scene(
            name="waiters",
            title="Many waiting claims, all woken at once",
            measure=waiters,
            entries=entries(Load(clients=1, present=0), WRITER, UVICORN),  # A place of its own: nothing may be there.
            columns=(
                Column("waiting claims", "waiters"),
                Column("memory of each, kB", "kb_each", 1),
                Column("all responses after, s", "all_woken_s", 2),
            ),
            is_quick=True,
            stage=SPEED,
        ),
    ]


def hand_outs(pace: Pace, ours: Sequence[Contender]) -> list[Scene]:
    """How fast tasks are claimed and deleted, and what it depends on."""
    return [
        Scene(
            name="cycles",
            title="Claim a task, then delete it",
            measure=tasks_handed_out,
            entries=[
                Entry(contender=contender, load=Load(clients=clients))
                for clients, contender in product(pace.clients, ALL)
                if clients <= contender.most_clients
            ],
            columns=RATES,
            is_quick=True,
        ),
        Scene(
            name="durability",
            title="Strict and opportunistic durability",
            measure=tasks_handed_out,
            entries=[
                Entry(contender=contender, load=Load(clients=BUSY), durability=durability)
                for contender, durability in product(ours, ("strict", "opportunistic"))
            ],
            columns=RATES,
        ),
        Scene(
            name="many",
            title="Few and many tasks in the store",
            measure=tasks_handed_out,
            entries=[
                Entry(contender=contender, load=Load(clients=BUSY, present=present))
                for contender, present in product((PSYCOPG, *ours), (10_000, pace.many))
            ],
            columns=RATES,
        ),
    ]


def long_runs(ours: Sequence[Contender]) -> list[Scene]:
    return [
        Scene(
            name="endurance",
            title="Long full load: each cycle adds a task for the one that it deletes",
            measure=endurance,
            entries=[Entry(contender=contender, load=Load(clients=BUSY, verb=Verb.REPLACE)) for contender in ours],
            columns=(
                Column("first fifth, tasks per second", "first"),
                Column("slowest", "least"),
                Column("last", "last"),
                Column("last to first", "kept", 2),
                *CLAIMS,
                *COSTS,
            ),
            rounds=1,
        ),
    ]


def wakes(ours: Sequence[Contender]) -> list[Scene]:
    """How soon a claim that waits gets its task."""
    return [
        Scene(
            name="wakeups",
            title="From sending a commit to the response to a waiting claim",
            measure=wakeups,
            entries=[Entry(contender=contender, load=Load(clients=1)) for contender in (*ours, TWO_DAPHNES)],
            columns=(
                Column("p50, ms", "p50_ms", 1),
                Column("p95", "p95_ms", 1),
                Column("longest", "p100_ms", 1),
            ),
            is_quick=True,
            rounds=1,
        ),
    ]


def worker_rates() -> Scene:
    """How fast workers do empty tasks, ours and those of others."""
    return Scene(
        name=WORKERS,
        title="Empty tasks, by each contender's own workers",
        measure=workers,
        entries=[Entry(contender=contender, load=Load(clients=at_once)) for contender, at_once in WORKERS_AT_ONCE],
        columns=(
            Column("tasks per second", "per_second", has_spread=True),
            Column("workers, µs per task", "worker_us"),
            Column("server", "server_us"),
            Column("database", "database_us"),
            Column("started by an idle one after, p50, ms", "p50_ms", 1),
            Column("p95", "p95_ms", 1),
        ),
        is_in_turn=True,
    )


def console_scenes(load: Load) -> list[Scene]:
    return [
        Scene(
            name="pages",
            title=f"Pages of the console, {load.present:,} tasks in {GROUPS} groups".replace(",000", " 000"),
            measure=page_times,
            entries=[Entry(contender=contender, load=load, page=page) for contender, page in product(CONSOLES, PAGES)],
            columns=(
                Column("p50, ms", "p50_ms"),
                Column("p95", "p95_ms"),
                Column("longest", "longest_ms"),
                Column("kB sent", "kb"),
            ),
            rounds=1,
            stage=CONSOLE,
        ),
        Scene(
            name="walk",
            title="Paging through the largest group",
            measure=walk,
            entries=[Entry(contender=contender, load=load) for contender in CONSOLES],
            columns=(
                Column("tasks shown", "tasks"),
                Column("missing", "missing"),
                Column("shown twice", "twice"),
                Column("p50 of a page, ms", "p50_ms"),
                Column("p95", "p95_ms"),
            ),
            rounds=1,
            stage=CONSOLE,
        ),
        Scene(
            name="bulk",
            title="Purge a group and undo the purge while 8 workers claim",
            measure=purge_and_undo,
            entries=[Entry(contender=contender, load=load) for contender in CONSOLES],
            columns=(
                Column("preview, ms", "preview_ms"),
                Column("response, ms", "answer_ms"),
                Column("purge, s", "purge_s", 1),
                Column("undo, s", "undo_s", 1),
                Column("usual claim p95, ms", "usual_ms", 1),
                Column("during the purge", "purging_ms", 1),
                Column("during the undo", "undoing_ms", 1),
                Column("higher / usual", "times", 2),
            ),
            rounds=1,
            stage="console",
        ),
        Scene(
            name="screen",
            title="The overview in Chromium",
            measure=first_sight,
            entries=[Entry(contender=contender, load=load) for contender in CONSOLES],
            columns=(
                Column("first paint, ms", "paint_ms"),
                Column("from a commit to the new number, p50, ms", "shown_p50_ms"),
                Column("p95", "shown_p95_ms"),
                Column("longest", "shown_longest_ms"),
            ),
            rounds=1,
            stage=CONSOLE,
            needs_browser=True,
        ),
        Scene(
            name="open",
            title="The overview during scrolling and typing while every group changes ten times a second",
            measure=open_long,
            entries=[Entry(contender=UVICORN, load=load)],
            columns=(
                Column("changes per second", "changes_per_s"),
                Column("tasks over 50 ms", "long_tasks"),
                Column("longest task, ms", "longest_task_ms"),
                Column("between frames p99, ms", "frame_p99_ms"),
                Column("MB of scripts before", "before_mb", 1),
                Column("after", "after_mb", 1),
            ),
            rounds=1,
            stage=CONSOLE,
            needs_browser=True,
        ),
    ]


def names(found: Sequence[Scene]) -> list[str]:
    """All words by which a part can be chosen: scenes, stages, kinds of contenders, contenders."""
    contenders = dict.fromkeys(entry.contender for scene in found for entry in scene.entries)
    stages = filter(None, (scene.stage for scene in found))
    kinds = dict.fromkeys(contender.kind for contender in contenders)
    return list(dict.fromkeys([*(scene.name for scene in found), *stages, *kinds, *(one.name for one in contenders)]))


def chosen(found: Sequence[Scene], words: Collection[str]) -> list[Scene]:
    """The scenes that the words name, with the contenders that they name.

    Where no word names a scene all are meant, and where none names a contender all of these.
    """
    named = [scene for scene in found if scene.is_named_by(words)] or found
    wanted = {word for word in words if not any(scene.is_named_by([word]) for scene in found)}
    of_scenes = [replace(scene, entries=_of(scene, wanted)) for scene in named]
    return [scene for scene in of_scenes if scene.entries]


def _of(scene: Scene, wanted: Collection[str]) -> list[Entry]:
    return [entry for entry in scene.entries if not wanted or {entry.contender.name, entry.contender.kind} & {*wanted}]
