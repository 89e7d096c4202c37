"""Format the results as Markdown tables that are also readable in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from .figures import Spread
from .goals import Goal, measured
from .measuring import Entry
from .pace import DATA, PRESENT
from .run import Results
from .scenes import WORKERS, Column, Scene

# The properties in which the lines of a scene can differ. Each that does differ becomes a column.
DIFFERENCES: Mapping[str, Callable[[Entry], str]] = {
    "clients": lambda entry: str(entry.load.clients),
    "keys": lambda entry: "with" if entry.load.with_keys else "without",
    "present": lambda entry: number(entry.load.present),
}
INTRODUCTION = """# Benchmarks

Made by `{command}` in one run, with all contenders on the same machine.

"""
OF_CLAIMS = """Contenders were measured in alternating rounds. A task holds {bytes} bytes. Unless a table says
otherwise, at least {present} tasks were available at all times. After each measurement the rows in the database were
counted, and a figure appears only if they agree with the clients' records.

Figures are medians of the rounds, with minimum and maximum in parentheses. Times are from a claim's request to its
response. A request is a claim or a deletion. Its processor time is that of the server's processes (or of the clients,
if there is no server) and that of PostgreSQL with its background processes; SQLite is part of the server. Cores are
processor time divided by elapsed time: 1.00 is one core all the time. Memory is that of the server or, if there is
none, of the clients.

"""
OF_WORKERS = """Workers were started after their tasks had been added, which do nothing. The rate is from the first
task that is done to the last, by what the database says. Processor time is that of the worker with all its processes,
of the server, if there is one, and of PostgreSQL with its background processes. What several processes do at a time is
in the column of clients.

"""
NOTHING = "–"  # noqa: RUF001 - a dash as in printed tables.


def report(scenes: Sequence[Scene], results: Results, conditions: Mapping[str, str]) -> str:
    """Return the conditions, the contenders, a table for each scene, and the goals."""
    parts = [_conditions(conditions), _legend(scenes), *(_scene(scene, results) for scene in scenes), _goals(results)]
    return "\n\n".join(filter(None, parts)) + "\n"


def page(command: str, scenes: Sequence[Scene], text: str) -> str:
    """Return the report as a page that also describes how the scenes were measured."""
    parts = [INTRODUCTION.format(command=command)]
    if any(scene.name != WORKERS for scene in scenes):
        parts.append(OF_CLAIMS.format(bytes=len(DATA), present=number(PRESENT)))
    if any(scene.name == WORKERS for scene in scenes):
        parts.append(OF_WORKERS)
    return "".join([*parts, text])


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
