"""Cells of CSV files, which people open with programs that calculate."""

from __future__ import annotations

FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r")


def guarded(text: str) -> str:
    """The text, with an apostrophe before it where a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(FORMULA_BEGINS) else text
