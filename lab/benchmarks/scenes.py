"""What is measured with whom: the tables of the report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product

from .console.bulk import purge_and_undo
from .console.pages import PAGES, page_times, walk
from .console.screen import first_sight, open_long
from .console.visitor import GROUPS
from .contenders import (
    COMMANDS_WORKER,
    DAPHNE,
    DAPHNE_SQLITE,
    DJANGO_TASKS,
    DJANGO_TASKS_WORKER,
    GRPC_DAPHNE,
    GRPC_UVICORN,
    JOBS_FORKED,
    JOBS_REUSED,
    PGBENCH,
    PROCRASTINATE,
    PROCRASTINATE_WORKER,
    PSYCOPG,
    RQ,
    RQ_WORKER,
    TWO_DAPHNES,
    UVICORN,
    WRITER,
    WRITER_SQLITE,
    XARGS,
    Contender,
)
from .figures import Figures
from .load import Load, Verb
from .measuring import Entry, commands, endurance, jobs, tasks_handed_out, waiters, wakeups
from .pace import Pace
from .places import Place

CONSOLES = (UVICORN, DAPHNE_SQLITE)
OURS = (WRITER, UVICORN, DAPHNE, WRITER_SQLITE, DAPHNE_SQLITE)
ALL = (PSYCOPG, PGBENCH, *OURS, GRPC_UVICORN, GRPC_DAPHNE, PROCRASTINATE, DJANGO_TASKS, RQ)
JOB_WORKERS = (JOBS_FORKED, JOBS_REUSED, DJANGO_TASKS_WORKER, PROCRASTINATE_WORKER, RQ_WORKER)
AT_ONCE = 4  # Jobs.
BUSY = 32  # Clients, where the number of clients is not the question.


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    title: str
    figure: str
    has_spread: bool = False  # Also shows the least and the most of the rounds.
    digits: int = 0

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

    def is_named_by(self, words: Collection[str]) -> bool:
        return self.name in words or self.stage in words


CONSOLE = "console"  # The stage on which people look.
JOBS = "jobs"
COMMANDS = "commands"
COSTS = (
    Column(title="client, cores", figure="client_cores", digits=2),
    Column(title="server", figure="server_cores", digits=2),
    Column(title="database", figure="database_cores", digits=2),
    Column(title="MB", figure="memory_mb"),
)
CLAIMS = (
    Column(title="claim p50, ms", figure="p50_ms", digits=2),
    Column(title="p99", figure="p99_ms", digits=2),
)
RATES = (Column(title="tasks a second", figure="per_second", has_spread=True), *CLAIMS, *COSTS)


def scenes(pace: Pace) -> list[Scene]:
    ours = OURS[:2] if pace.is_short else OURS
    console = Load(clients=1, present=pace.many)
    return [*hand_outs(pace, ours), *long_runs(ours), *waits(ours), *runners(), *console_scenes(console)]


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
            name="batches",
            title="Claim 100 tasks at a time",
            measure=tasks_handed_out,
            entries=[
                Entry(contender=contender, load=Load(clients=clients, batch=100, verb=Verb.CLAIM))
                for clients, contender in product((8,) if pace.is_short else (1, 8), (PSYCOPG, *ours))
            ],
            columns=RATES,
            is_quick=True,
        ),
        Scene(
            name="durability",
            title="Answers that wait for the disk, and answers that do not",
            measure=tasks_handed_out,
            entries=[
                Entry(contender=contender, load=Load(clients=BUSY), durability=durability)
                for contender, durability in product(ours, ("strict", "opportunistic"))
            ],
            columns=RATES,
        ),
        Scene(
            name="keys",
            title="Requests with and without an idempotency key",
            measure=tasks_handed_out,
            entries=[
                Entry(contender=contender, load=Load(clients=BUSY, with_keys=with_keys))
                for contender, with_keys in product(ours, (False, True))
            ],
            columns=RATES,
        ),
        Scene(
            name="many",
            title="Few and many tasks present",
            measure=tasks_handed_out,
            entries=[
                Entry(contender=contender, load=Load(clients=BUSY, present=present))
                for contender, present in product((PSYCOPG, *ours, PROCRASTINATE, DJANGO_TASKS), (10_000, pace.many))
            ],
            columns=RATES,
        ),
    ]


def long_runs(ours: Sequence[Contender]) -> list[Scene]:
    return [
        Scene(
            name="endurance",
            title="A long time of full load: each cycle adds a task for the one that it deletes",
            measure=endurance,
            entries=[Entry(contender=contender, load=Load(clients=BUSY, verb=Verb.REPLACE)) for contender in ours],
            columns=(
                Column(title="first fifth, tasks a second", figure="first"),
                Column(title="slowest", figure="least"),
                Column(title="last", figure="last"),
                Column(title="last to first", figure="kept", digits=2),
                *CLAIMS,
                *COSTS,
            ),
            rounds=1,
        ),
    ]


def waits(ours: Sequence[Contender]) -> list[Scene]:
    """How soon a claim that waits gets its task."""
    return [
        Scene(
            name="wakeups",
            title="From sending a commit to the answer of the claim that waited for it",
            measure=wakeups,
            entries=[Entry(contender=contender, load=Load(clients=1)) for contender in (*ours, TWO_DAPHNES)],
            columns=(
                Column(title="p50, ms", figure="p50_ms", digits=1),
                Column(title="p95", figure="p95_ms", digits=1),
                Column(title="longest", figure="p100_ms", digits=1),
            ),
            is_quick=True,
            rounds=1,
        ),
        Scene(
            name="waiters",
            title="Many claims that wait, all woken at once",
            measure=waiters,
            entries=[Entry(contender=contender, load=Load(clients=1)) for contender in ours[:2]],
            columns=(
                Column(title="waiting claims", figure="waiters"),
                Column(title="memory of each, kB", figure="kb_each", digits=1),
                Column(title="all answered after, s", figure="all_woken_s", digits=2),
            ),
            is_quick=True,
            rounds=1,
        ),
    ]


def runners() -> list[Scene]:
    """How fast workers run jobs and shell commands."""
    return [
        Scene(
            name=JOBS,
            title=f"Jobs that do nothing, {AT_ONCE} at a time, by each one's own workers",
            measure=jobs,
            entries=[Entry(contender=contender, load=Load(clients=AT_ONCE)) for contender in JOB_WORKERS],
            columns=(
                Column(title="jobs a second", figure="per_second", has_spread=True, digits=1),
                Column(title="an idle worker starts one after p50, ms", figure="p50_ms", digits=1),
                Column(title="longest", figure="p100_ms", digits=1),
            ),
        ),
        Scene(
            name=COMMANDS,
            title=f"Shell commands that do nothing, {AT_ONCE} at a time, in lists of 50",
            measure=commands,
            entries=[Entry(contender=each, load=Load(clients=AT_ONCE)) for each in (COMMANDS_WORKER, XARGS)],
            columns=(Column(title="commands a second", figure="per_second", has_spread=True),),
        ),
    ]


def console_scenes(load: Load) -> list[Scene]:
    return [
        Scene(
            name="pages",
            title=f"Pages of the console, {load.present:,} tasks in {GROUPS} groups".replace(",000", " 000"),
            measure=page_times,
            entries=[Entry(contender=contender, load=load, page=page) for contender, page in product(CONSOLES, PAGES)],
            columns=(
                Column(title="p50, ms", figure="p50_ms"),
                Column(title="p95", figure="p95_ms"),
                Column(title="longest", figure="longest_ms"),
                Column(title="kB as sent", figure="kb"),
            ),
            rounds=1,
            stage=CONSOLE,
        ),
        Scene(
            name="walk",
            title="From page to page of the largest group",
            measure=walk,
            entries=[Entry(contender=contender, load=load) for contender in CONSOLES],
            columns=(
                Column(title="tasks shown", figure="tasks"),
                Column(title="missing", figure="missing"),
                Column(title="shown twice", figure="twice"),
                Column(title="p50 of a page, ms", figure="p50_ms"),
                Column(title="p95", figure="p95_ms"),
            ),
            rounds=1,
            stage=CONSOLE,
        ),
        Scene(
            name="bulk",
            title="A group purged by a person, and the purge undone, while 8 workers claim",
            measure=purge_and_undo,
            entries=[Entry(contender=contender, load=load) for contender in CONSOLES],
            columns=(
                Column(title="question, ms", figure="preview_ms"),
                Column(title="answer, ms", figure="answer_ms"),
                Column(title="purge, s", figure="purge_s", digits=1),
                Column(title="undo, s", figure="undo_s", digits=1),
                Column(title="claim p95 without, ms", figure="usual_ms", digits=1),
                Column(title="beside the purge", figure="purging_ms", digits=1),
                Column(title="beside the undo", figure="undoing_ms", digits=1),
                Column(title="times", figure="times", digits=2),
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
                Column(title="first paint, ms", figure="paint_ms"),
                Column(title="from a commit to its number, p50, ms", figure="shown_p50_ms"),
                Column(title="p95", figure="shown_p95_ms"),
                Column(title="longest", figure="shown_longest_ms"),
            ),
            rounds=1,
            stage=CONSOLE,
            needs_browser=True,
        ),
        Scene(
            name="open",
            title="The overview while every group changes ten times a second, scrolled and typed on",
            measure=open_long,
            entries=[Entry(contender=UVICORN, load=load)],
            columns=(
                Column(title="changes a second", figure="changes_per_s"),
                Column(title="tasks over 50 ms", figure="long_tasks"),
                Column(title="longest task, ms", figure="longest_task_ms"),
                Column(title="between frames p99, ms", figure="frame_p99_ms"),
                Column(title="MB of scripts before", figure="before_mb", digits=1),
                Column(title="after", figure="after_mb", digits=1),
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
