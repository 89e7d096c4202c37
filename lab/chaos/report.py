"""Run scenes on each database, and report the results as Markdown tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from lab.benchmarks.report import table
from lab.testing import CannotTry

from .outcome import SceneResult, Violation
from .pace import Pace
from .scenes import Scene
from .stage import Database, Places

HEAD = ("", "database", "operations", "faults", "in doubt", "violations", "at most 1 in")
MOST_ENTRIES = 20  # Of a violation.


def report(results: Sequence[Result]) -> str:
    """Return the table of scenes, their figures, and the scenes that could not be tried."""
    lines = [_line(result, result.outcome) for result in results if result.outcome]
    parts = [table([HEAD, *lines]), BOUND] if lines else []
    return "\n\n".join([*parts, *filter(None, ["\n".join(_figures(results)), "\n".join(_problems(results))])])


BOUND = "At most 1 in: if no operation failed, at most one in this many operations fails, with 95 % confidence."


def _line(result: Result, outcome: SceneResult) -> list[str]:
    bound = _number(round(1 / outcome.bound)) if outcome.operations >= 3 and not outcome.violations else "-"
    counts = (outcome.operations, outcome.faults, outcome.in_doubt, len(outcome.violations))
    return [f"`{result.scene.name}`", result.database, *map(_number, counts), bound]


def _figures(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        for figure in result.outcome.figures if result.outcome else ():
            yield f"* `{result.scene.name}`, {result.database}: {figure}"


def _problems(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        if result.problem:
            yield f"* `{result.scene.name}`, {result.database}: not run: {result.problem}"


def in_full(violation: Violation) -> str:
    """Return the text of a violation with its requests, one per line."""
    entries = [json.dumps(asdict(event)) for event in violation.entries[:MOST_ENTRIES]]
    more = len(violation.entries) - len(entries)
    return "\n    ".join([violation.text, *entries, *([f"and {more} more"] if more else [])])


def _number(value: int) -> str:
    return f"{value:,}".replace(",", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    scene: Scene
    database: Database
    outcome: SceneResult | None = None  # None: it could not be tried, because of `problem`.
    problem: str = ""


def run(
    scenes: Sequence[Scene],
    databases: Sequence[Database],
    places: Places,
    seed: str,
    pace: Pace,
    say: Callable[[str], None],
) -> Iterator[Result]:
    """Run all scenes once. `say` gets a line before each."""
    for database in databases:
        for scene in scenes:
            if database in scene.databases:
                say(f"{scene.name} on {database}: {scene.title}")
                yield play(scene, database, places, seed, pace)


def play(scene: Scene, database: Database, places: Places, seed: str, pace: Pace) -> Result:
    try:
        with places.stage(scene.name, database, seed, pace) as stage:
            return Result(scene=scene, database=database, outcome=scene.act(stage))
    except CannotTry as problem:
        return Result(scene=scene, database=database, problem=str(problem))
