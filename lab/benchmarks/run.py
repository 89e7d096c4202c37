"""The order of things: scene after scene, and within a scene in turn, A B A B."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby

import psycopg

from lab.testing.places import Places

from . import CannotMeasure
from .contenders import Contender
from .figures import Figures, Spread, spreads
from .measuring import Entry
from .pace import Pace
from .places import Place, place_for
from .scenes import Scene


@dataclass(slots=True)
class Results:
    """What was measured, by the name of the scene."""

    rounds: dict[str, dict[Entry, list[Figures]]] = field(default_factory=lambda: defaultdict(dict))
    problems: dict[str, dict[Entry, str]] = field(default_factory=lambda: defaultdict(dict))

    def spreads(self, scene: str, entry: Entry) -> dict[str, Spread]:
        """Its figures by their names; none when it could not be measured."""
        return spreads(self.rounds[scene].get(entry, []))

    def median(self, scene: str, entry_name: str, figure: str) -> float:
        """One figure of one entry. Raises LookupError when it was not measured."""
        found = {entry.name: entry for entry in self.rounds[scene]}
        return self.spreads(scene, found[entry_name])[figure].median

    @property
    def is_complete(self) -> bool:
        return not any(self.problems.values())


def run(scenes: Sequence[Scene], pace: Pace, places: Places, say: Callable[[str], None]) -> Results:
    """Measure everything. What can't be measured is noted and left out from then on; the rest goes on."""
    results = Results()
    for _, on_one_stage in groupby(scenes, key=lambda scene: scene.stage or scene.name):
        with Stage(places) as stage:
            for scene in on_one_stage:
                say(f"{scene.title}:")
                for line in _act(scene, stage, pace, results):
                    say(f"  {line}")
    return results


def _act(scene: Scene, stage: Stage, pace: Pace, results: Results) -> Iterator[str]:
    """Measure all of a scene; a line for each measurement."""
    for entry in _turns(scene, pace):
        if entry not in results.problems[scene.name]:
            yield _measure(scene, entry, stage, pace, results)


def _turns(scene: Scene, pace: Pace) -> Iterator[Entry]:
    for _, entries in groupby(scene.entries, key=lambda entry: scene.is_in_turn or entry.load.clients):
        # All with so many clients in a row, and again: what the machine does meanwhile hits all of them alike.
        yield from list(entries) * pace.rounds


def _measure(scene: Scene, entry: Entry, stage: Stage, pace: Pace, results: Results) -> str:
    """Measure once, note what comes of it, and say it in a line."""
    try:
        figures = scene.measure(entry, stage.place_of(entry), pace)
    except (CannotMeasure, psycopg.Error) as problem:
        results.problems[scene.name][entry] = str(problem)
        return f"{entry.name}: not measured: {problem}"
    results.rounds[scene.name].setdefault(entry, []).append(figures)
    first = scene.columns[0]
    return f"{entry.name}: {first.title} {first.shown(figures[first.figure])}"


class Stage:
    """The places of a scene, or of several, made when they are needed and gone at the end."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._stack = ExitStack()
        self._made: dict[Contender, Place] = {}

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def place_of(self, entry: Entry) -> Place:
        if entry.contender not in self._made:
            self._made[entry.contender] = self._stack.enter_context(place_for(entry.contender, self._places))
        return self._made[entry.contender]
