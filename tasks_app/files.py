"""What lists are written as when they become files."""

from __future__ import annotations

import re
from enum import StrEnum

# What spreadsheets take for the beginning of a formula, also behind what they leave out. The last four are = + - @ in
# full width, which some take for the same.
FORMULA = re.compile(r"[\s\0-\x1f\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r]")


class Format(StrEnum):
    CSV = "csv"
    NDJSON = "ndjson"


MEDIA_TYPES = {Format.CSV: "text/csv; charset=utf-8", Format.NDJSON: "application/x-ndjson"}


def guarded(text: str) -> str:
    """Text of a cell that no spreadsheet takes for a formula: with an apostrophe before what looks like one."""
    return f"'{text}" if FORMULA.match(text) else text
