"""The results as text, in Markdown's tables: they are read on a terminal too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from .figures import Spread
from .goals import Goal, measured
from .load import DATA, PRESENT
from .measuring import Entry
from .run import Results
from .scenes import COMMANDS, CONSOLE, JOBS, Column, Scene

# What tells the lines of a scene apart: each is a column where the lines differ in it.
DIFFERENCES: Mapping[str, Callable[[Entry], str]] = {
    "clients": lambda entry: str(entry.load.clients),
    "durability": lambda entry: entry.durability,
    "keys": lambda entry: "with" if entry.load.with_keys else "without",
    "present": lambda entry: number(entry.load.present),
    "page": lambda entry: entry.page,
}
INTRODUCTION = """# Benchmarks

Made by `{command}`, in one run, with all that took part on the same machine.

"""
OF_CLAIMS = """Contenders were measured in turn, several rounds of each. A task holds {bytes} bytes; at least {present}
tasks were there to be claimed all the time, unless a table says otherwise. After each measurement the rows in the
database were counted: a figure stands here only where they agree with what the clients say to have done.

Figures are medians of the rounds, in parentheses the least and the most. Times are those of a claim, from asking to
the answer. A request is a claim or a deletion. Its processor time is that of the server's processes, or of the clients
where there is no server, and that of PostgreSQL with its background processes; SQLite is in the server. Cores are
processor time by time that passed: 1.00 is one core all the time. Memory is that of what does the store's work: its
server, or the clients where there is none.

"""
OF_PAGES = """The console was looked at in a store that `demo seed` filled. The times of a page are from asking to its
last byte.

"""
OF_JOBS = """Jobs were enqueued before the workers started. Their rate is that from the first result to the last, by
the records that each one's workers write.

"""
OF_COMMANDS = """Commands were submitted, and their lists made, before the workers started. Their rate is that from
the first completed one to the last: run, written down by the workers, and settled by the server.

"""
NOTHING = "–"  # noqa: RUF001 - a dash as in printed tables.


def report(scenes: Sequence[Scene], results: Results, conditions: Mapping[str, str]) -> str:
    """All of it: conditions, who took part, a table for each scene, and how it compares with the goals."""
    parts = [_conditions(conditions), _legend(scenes), *(_scene(scene, results) for scene in scenes), _goals(results)]
    return "\n\n".join(filter(None, parts)) + "\n"


def page(command: str, scenes: Sequence[Scene], text: str) -> str:
    """The report as a document of its own, which says how the scenes were measured."""
    told = [INTRODUCTION.format(command=command)]
    if any(scene.stage != CONSOLE and scene.name not in (JOBS, COMMANDS) for scene in scenes):
        told.append(OF_CLAIMS.format(bytes=len(DATA), present=number(PRESENT)))
    if any(scene.stage == CONSOLE for scene in scenes):
        told.append(OF_PAGES)
    if any(scene.name == JOBS for scene in scenes):
        told.append(OF_JOBS)
    if any(scene.name == COMMANDS for scene in scenes):
        told.append(OF_COMMANDS)
    return "".join([*told, text])


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
    head = ["", "before", "measured", "goal", "met"]
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
