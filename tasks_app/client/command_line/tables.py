"""What is shown to people: tables that fit the terminal, coloured only there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from .words import printable

WIDEST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    title: str
    is_number: bool = False
    is_long: bool = False  # It gives way when the terminal is narrow.
    is_kept: bool = False  # Also when nothing stands in it.
    is_spare: bool = False  # It is left out when the terminal is narrow.
    is_folded: bool = False  # Its end tells what it is: it goes on in the next line when it does not fit.
    style: str = ""


@dataclass(frozen=True, slots=True)
class Fitting:
    """A table that leaves out what can be spared where it would be too wide."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        places = [place for place, column in enumerate(self.columns) if column.is_kept or self._says(place)]
        needed = console.measure(self._of(places), options=options.update(max_width=WIDEST)).maximum
        is_narrow = needed > options.max_width
        yield self._of([place for place in places if not (is_narrow and self.columns[place].is_spare)])

    def _says(self, place: int) -> bool:
        return any(row[place] for row in self.rows)

    def _of(self, places: Sequence[int]) -> Table:
        made = Table(box=None, padding=(0, 2, 0, 0))
        for place in places:
            add_column(made, self.columns[place])
        for row in self.rows:
            made.add_row(*(_cell(row[place], self.columns[place]) for place in places))
        return made


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Fitting:
    """The rows below the titles. What a terminal would obey is escaped."""
    return Fitting(columns, list(rows))


def _cell(text: str, column: Column) -> Text:
    if column.is_folded:
        return Text(printable(text), overflow="fold")
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def add_column(made: Table, column: Column) -> None:
    title = Text(column.title, style="bold underline", no_wrap=True, overflow="ellipsis")
    # What may be broken gives way first; that its texts are not broken but cut is said of each.
    made.add_column(
        title, justify="right" if column.is_number else "left", no_wrap=not column.is_long, style=column.style
    )


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """Names and what each is, below each other."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, what in pairs:
        made.add_row(name, Text(printable(what)))
    return made
