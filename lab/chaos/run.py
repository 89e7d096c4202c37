"""Run scenes on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lab.testing import CannotTry

from .outcome import SceneResult
from .pace import Pace
from .scenes import Scene
from .stage import Database, Places


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
