"""Format the output of commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def lines_of(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows as lines, with each column as wide as its longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def grouped(number: int) -> str:
    """Format 1234567 as 1 234 567."""
    return f"{number:,}".replace(",", " ")
