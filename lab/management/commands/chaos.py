"""Break servers, databases, workers and networks, and check that the store keeps its promises."""

from __future__ import annotations

import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from lab.benchmarks.report import number, table
from lab.chaos.outcome import SceneResult, in_full
from lab.chaos.pace import SHORT, TINY, Pace
from lab.chaos.scenes import SCENES, Scene
from lab.chaos.stage import Database, stage
from lab.testing import CannotTry
from lab.testing.places import Places
from taskstore_project.base_command import CannotRun, ProjectCommand

VIOLATED = 1
INCOMPLETE = 3
MOST_SHOWN = 5  # Violations of a scene.
HEAD = ("", "database", "operations", "faults", "in doubt", "violations", "at most 1 in")
BOUND = "At most 1 in: if no operation failed, at most one in this many operations fails, with 95 % confidence."


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    scene: Scene
    database: Database
    outcome: SceneResult | None = None  # None: it could not be tried, because of `problem`.
    problem: str = ""

    @property
    def name(self) -> str:
        return f"`{self.scene.name}`, {self.database}"


class Command(ProjectCommand):
    help = "Break servers, databases, workers and networks under load, and check the store's guarantees."

    def add_arguments(self, parser: CommandParser) -> None:
        names = ", ".join(scene.name for scene in SCENES)
        parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"only: {names}")
        parser.add_argument("--tiny", action="store_true", help="a shorter run: about a minute per database")
        parser.add_argument("--database", choices=[*Database, "both"], default="both", help="default: both")
        parser.add_argument("--seed", help="seed of an earlier run, to repeat its actions (default: a new one)")
        parser.add_argument(
            "--folder",
            type=Path,
            default=Path(tempfile.gettempdir()),
            metavar="DIR",
            help="directory for the databases; PostgreSQL's user needs access (default: %(default)s)",
        )

    def handle(
        self, *, scenes: Sequence[str], tiny: bool, database: str, seed: str | None, folder: Path, **_: Any
    ) -> None:
        # Make SIGTERM end all started processes too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        if not folder.is_dir():
            raise CannotRun(f"the directory {folder} does not exist: name another one with --folder")
        selected = selection(scenes)
        databases = list(Database) if database == "both" else [Database(database)]
        if not any(found in scene.databases for scene in selected for found in databases):
            raise CannotRun(f"{' '.join(scenes)} can't be tried on {database}: choose another database")
        seed = seed or secrets.token_hex(4)
        say(f"seed {seed}")
        results: list[Result] = []
        try:
            with Places(folder) as places:
                for result in run(selected, databases, places, seed, TINY if tiny else SHORT):
                    results.append(result)
                    tell(result)
        except KeyboardInterrupt:
            say("interrupted: these are the results so far")
        say(f"\n{report(results)}")
        sys.exit(exit_code(results))


def selection(names: Sequence[str]) -> list[Scene]:
    """Raises CannotRun when a name names nothing."""
    known = {scene.name: scene for scene in SCENES}
    if unknown := [name for name in names if name not in known]:
        raise CannotRun(f"{unknown[0]} is not a known scene; use one of {', '.join(known)}")
    return [known[name] for name in names] or list(SCENES)


def run(
    scenes: Sequence[Scene], databases: Sequence[Database], places: Places, seed: str, pace: Pace
) -> Iterator[Result]:
    for database in databases:
        for scene in scenes:
            if database not in scene.databases:
                continue
            say(f"{scene.name} on {database}: {scene.title}")
            try:
                with stage(places, scene.name, database, seed, pace) as place:
                    yield Result(scene=scene, database=database, outcome=scene.act(place))
            except CannotTry as problem:
                yield Result(scene=scene, database=database, problem=str(problem))


def tell(result: Result) -> None:
    if result.outcome is None:
        say(f"  not run: {result.problem}")
        return
    for figure in result.outcome.figures:
        say(f"  {figure}")
    for violation in result.outcome.violations[:MOST_SHOWN]:
        say(f"  VIOLATION {in_full(violation)}")


def report(results: Sequence[Result]) -> str:
    """Return the table of scenes, their figures, and the scenes that could not be tried."""
    lines = [line(result, result.outcome) for result in results if result.outcome]
    figures = [
        f"* {result.name}: {figure}" for result in results if result.outcome for figure in result.outcome.figures
    ]
    problems = [f"* {result.name}: not run: {result.problem}" for result in results if result.problem]
    # Once more at the end, which is what is left of a long log.
    problems += [
        f"* {result.name}: VIOLATION {each.text}"
        for result in results
        if result.outcome
        for each in result.outcome.violations[:MOST_SHOWN]
    ]
    parts = [table([HEAD, *lines]), BOUND] if lines else []
    return "\n\n".join([*parts, *filter(None, ["\n".join(figures), "\n".join(problems)])])


def line(result: Result, outcome: SceneResult) -> list[str]:
    bound = number(outcome.operations // 3) if outcome.operations >= 3 and not outcome.violations else "-"
    counts = (outcome.operations, outcome.faults, outcome.in_doubt, len(outcome.violations))
    return [f"`{result.scene.name}`", result.database, *map(number, counts), bound]


def exit_code(results: Sequence[Result]) -> int:
    """Return the exit code. Missed time goals don't count, because they depend on the machine."""
    if any(result.outcome and result.outcome.violations for result in results):
        return VIOLATED
    return INCOMPLETE if any(result.outcome is None for result in results) or not results else 0


def say(text: str) -> None:
    print(text, flush=True)
