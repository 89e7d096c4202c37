"""Format numbers, times and tables for a terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from ..units import UNITS_S

T = TypeVar("T")

# Characters that control a terminal, which a task may contain on purpose.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
BUT_LINES = re.compile(CONTROL.pattern.replace(r"\x00-\x1f", r"\x00-\x08\x0b-\x1f"))


def number(value: int) -> str:
    """12 431"""
    return f"{value:,}".replace(",", " ")


def rate(per_minute: float) -> str:
    """0, 0.4, 7.5, 1 204"""
    return f"{per_minute:.1f}".removesuffix(".0") if per_minute < 9.95 else number(round(per_minute))


def rough(value_ms: int) -> str:
    """Format a time span in its largest unit: 0 s, 38 s, 2 h."""
    seconds = value_ms // 1_000
    unit, length_s = next((each for each in UNITS_S if seconds >= each[1]), UNITS_S[-1])
    return f"{number(seconds // length_s)} {unit}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def relative(at_ms: int) -> str:
    """Format a time relative to now: now, 38 s ago, in 2 h."""
    return lasting(now_ms() - at_ms)


def lasting(age_ms: int) -> str:
    """Format a time by its age, which is negative in the future."""
    if abs(age_ms) < 1_000:
        return "now"
    return f"in {rough(-age_ms)}" if age_ms < 0 else f"{rough(age_ms)} ago"


def exact(at_ms: int) -> str:
    """Format a time as 2026-11-20 14:02:11 UTC, or as a number if it is beyond the calendar."""
    try:
        return f"{datetime.fromtimestamp(at_ms // 1_000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError):
        return f"{at_ms} ms"


def when(at_ms: int) -> str:
    """2026-11-20 14:02:11 UTC, 3 min ago"""
    return f"{exact(at_ms)}, {relative(at_ms)}"


def printable(text: str) -> str:
    """Return the text in one line with control characters escaped."""
    return CONTROL.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """Return the text with control characters escaped, except for line breaks and tabs."""
    return BUT_LINES.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


WIDEST = 10_000


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table, and its cell for an item."""

    title: str
    cell: Callable[[T], object]  # None and 0 are shown as nothing, unless the column is kept.
    _: KW_ONLY
    is_number: bool = False
    is_long: bool = False  # Shrinks on a narrow terminal.
    is_kept: bool = False  # Shown even if it is empty.
    is_spare: bool = False  # Left out on a narrow terminal.
    is_folded: bool = False  # Wrapped instead of cut, because its end matters.
    style: str = ""

    def text_of(self, item: T) -> str:
        value = self.cell(item)
        return str(value if value or (self.is_kept and value is not None) else "")


@dataclass(frozen=True, slots=True)
class Fitting:
    """A table that leaves out spare columns if it is too wide for the terminal."""

    columns: Sequence[Column[Any]]
    rows: Sequence[Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        places = [
            place for place, column in enumerate(self.columns) if column.is_kept or any(row[place] for row in self.rows)
        ]
        needed = console.measure(self._of(places), options=options.update(max_width=WIDEST)).maximum
        is_narrow = needed > options.max_width
        yield self._of([place for place in places if not (is_narrow and self.columns[place].is_spare)])

    def _of(self, places: Sequence[int]) -> Table:
        made = Table(box=None, padding=(0, 2, 0, 0))
        for place in places:
            add_column(made, self.columns[place])
        for row in self.rows:
            made.add_row(*(_cell(row[place], self.columns[place]) for place in places))
        return made


def table(columns: Sequence[Column[T]], items: Iterable[T]) -> Fitting:
    """Return a table with a row for each item, with control characters escaped."""
    return Fitting(columns, [[column.text_of(item) for column in columns] for item in items])


def _cell(text: str, column: Column[Any]) -> Text:
    if column.is_folded:
        return Text(printable(text), overflow="fold")
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def add_column(made: Table, column: Column[Any]) -> None:
    title = Text(column.title, style="bold underline", no_wrap=True, overflow="ellipsis")
    # Columns that may wrap shrink first; each cell then decides whether it wraps or is cut.
    made.add_column(
        title, justify="right" if column.is_number else "left", no_wrap=not column.is_long, style=column.style
    )


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Return a table of names and values, without those that are empty."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, what in pairs:
        if what:
            made.add_row(name, Text(printable(str(what))))
    return made
