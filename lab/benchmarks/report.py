"""Format the results as Markdown tables that are also readable in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from .figures import Spread
from .goals import Goal, measured
from .measuring import Entry
from .run import Results
from .scenes import Column, Scene

# The properties in which the lines of a scene can differ. Each that does differ becomes a column.
DIFFERENCES: Mapping[str, Callable[[Entry], str]] = {
    "clients": lambda entry: str(entry.load.clients),
    "keys": lambda entry: "with" if entry.load.with_keys else "without",
}
NOTHING = "–"  # noqa: RUF001 - a dash as in printed tables.


def report(scenes: Sequence[Scene], results: Results, conditions: Mapping[str, str]) -> str:
    """Return the conditions, the contenders, a table for each scene, and the goals."""
    parts = [_conditions(conditions), _legend(scenes), *(_scene(scene, results) for scene in scenes), _goals(results)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _conditions(conditions: Mapping[str, str]) -> str:
    return "\n".join(f"* {name}: {value}" for name, value in conditions.items())


def _legend(scenes: Sequence[Scene]) -> str:
    contenders = dict.fromkeys(entry.contender for scene in scenes for entry in scene.entries)
    return "\n".join(f"* `{contender.name}`: {contender.title}" for contender in contenders)


def _scene(scene: Scene, results: Results) -> str:
    differences = [name for name, of in DIFFERENCES.items() if len({of(entry) for entry in scene.entries}) > 1]
    head = ["", *differences, *(column.title for column in scene.columns)]
    lines = [
        [entry.contender.name, *(DIFFERENCES[name](entry) for name in differences), *_cells(scene, entry, results)]
        for entry in scene.entries
    ]
    problems = [f"{entry.name} could not be measured: {text}" for entry, text in results.problems[scene.name].items()]
    return "\n\n".join([f"## {scene.title}", table([head, *lines]), *problems])


def _cells(scene: Scene, entry: Entry, results: Results) -> Iterator[str]:
    found = results.spreads(scene.name, entry)
    for column in scene.columns:
        yield _cell(column, found[column.figure]) if column.figure in found else NOTHING


def _cell(column: Column, spread: Spread) -> str:
    if not column.has_spread:
        return column.shown(spread.median)
    return f"{column.shown(spread.median)} ({column.shown(spread.least)} to {column.shown(spread.most)})"


def _goals(results: Results) -> str:
    lines = [
        [goal.text, NOTHING if before is None else f"{before:.2f}", f"{value:.2f}", goal.limit, _mark(goal, value)]
        for goal, value, before in measured(results)
    ]
    head = ["", "earlier", "measured", "goal", "met"]
    if all(before == NOTHING for _, before, *_ in lines):
        head, lines = [head[0], *head[2:]], [[line[0], *line[2:]] for line in lines]
    return "\n\n".join(["## Goals", table([head, *lines])]) if lines else ""


def _mark(goal: Goal, value: float) -> str:
    return "yes" if goal.is_met_by(value) else "NO"


def table(lines: Sequence[Sequence[str]]) -> str:
    """The first line is the head, the first column is text, the others are figures."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    rows = [_row(lines[0], widths), f"| {' | '.join(rule)} |", *(_row(line, widths) for line in lines[1:])]
    return "\n".join(rows)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *figures = [
        cell.ljust(width) if place == 0 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join([first, *figures])} |"


def number(value: int) -> str:
    return f"{value:,}".replace(",", " ")
