"""Sentences that say what is wrong with a field, so that every way in says it in the same words. Pure.

Each continues the name of the field: `limit: must be between 1 and 1000, not 5000`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

REQUIRED = "is required"
NOT_EMPTY = "must not be empty"
NO_NUL = "must not contain the NUL character"
VALID_UTF8 = "must be valid UTF-8 text: it contains a lone surrogate"
BASE64 = "must be valid Base64"
INT64 = "must be a 64-bit integer"
PERCENT_ENCODED = "must be percent-encoded UTF-8"
NO_SLASH = "must not be empty or contain / or NUL"
DOTTED_PATH = "must be the dotted path of a function"

LONGEST_SHOWN = 100
KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", float: "a floating-point number"}


def between(least: int, most: int, value: Any = None) -> str:
    """A number that is out of range, or that is no integer. Without the value the sentence ends before it."""
    if value is None:
        return f"must be an integer between {least} and {most}"
    is_integer = type(value) is int
    return f"must be {'' if is_integer else 'an integer '}between {least} and {most}{but_not(value)}"


def int64(value: Any) -> str:
    return INT64 + but_not(value)


def at_most(most: int, unit: str, size: int) -> str:
    """Something that is too long, or of which there are too many; `unit` in the plural."""
    return f"must have at most {most} {unit}, not {size}"


def one_of(choices: Iterable[str], value: Any = None) -> str:
    return f"must be one of {', '.join(choices)}{but_not_text(value) if isinstance(value, str) else but_not(value)}"


def unknown(kind: str, names: Iterable[str]) -> str:
    """A field or parameter that does not exist, beside these that do."""
    names = list(names)
    if not names:
        return f"is not a known {kind}; none are allowed here"
    return f"is not a known {kind}; use {'one of ' * (len(names) > 1)}{', '.join(names)}"


def not_together(*others: str) -> str:
    """A field that excludes others that are given too."""
    return f"must not be given together with {' or '.join(others)}"


def but_not_text(text: str) -> str:
    """The end of a sentence about a text that is not too long to be shown."""
    shown = json.dumps(text)  # With escapes for everything but ASCII: it may not be printable.
    return f", not {shown}" if len(shown) <= LONGEST_SHOWN else ""


def but_not(value: Any) -> str:
    """The end of a sentence: an integer as it is, the kind of any other value of JSON."""
    if type(value) is int:
        # Longer ones may have been cut already where they were read.
        return f", not {value}" if abs(value) < 10**20 else ""
    return f", not {KINDS.get(type(value), 'another type')}"
