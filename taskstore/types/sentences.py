"""Say what is wrong with a field, in the same words for every way in. Pure.

Each sentence continues the name of the field: `limit: must be between 1 and 1000, not 5000`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .scalars import GROUP_LENGTH, KEY_LENGTH, MOST_UNIQUE_FOR_MS

if TYPE_CHECKING:
    from .tasks import Problem

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
    """Refuse what is not an integer in this range. None: the value is not shown."""
    if value is None:
        return f"must be an integer between {least} and {most}"
    is_integer = type(value) is int
    return f"must be {'' if is_integer else 'an integer '}between {least} and {most}{but_not(value)}"


def share(value: Any) -> str:
    """Refuse what is not a number from 0 to 1."""
    return f"must be a number from 0 to 1{f', not {value:g}' if type(value) in (int, float) else but_not(value)}"


def int64(value: Any) -> str:
    return INT64 + but_not(value)


def at_most(most: int, unit: str, size: int) -> str:
    """Refuse what is too long or too many; `unit` is a plural."""
    return f"must have at most {most} {unit}, not {size}"


def one_of(choices: Iterable[str], value: Any) -> str:
    return f"must be one of {', '.join(choices)}{but_not_text(value) if isinstance(value, str) else but_not(value)}"


def unknown(kind: str, names: Iterable[str]) -> str:
    """Refuse a field or parameter that is not among these names."""
    names = list(names)
    if not names:
        return f"is not a known {kind}; none are allowed here"
    return f"is not a known {kind}; use {'one of ' * (len(names) > 1)}{', '.join(names)}"


def not_together(*others: str) -> str:
    """Refuse a field beside others that it excludes."""
    return f"must not be given together with {' or '.join(others)}"


def but_not_text(text: str) -> str:
    """End a sentence with a text, unless it is too long."""
    shown = json.dumps(text)  # Escapes everything but ASCII, which may not be printable.
    return f", not {shown}" if len(shown) <= LONGEST_SHOWN else ""


class Written(str):
    """A text of a URL where something else was asked for."""

    __slots__ = ()


def but_not(value: Any) -> str:
    """End a sentence with an integer, or with the type of any other JSON value."""
    if type(value) is Written:
        return but_not_text(value)
    if type(value) is int:
        # The reader of JSON may have cut longer ones.
        return f", not {value}" if abs(value) < 10**20 else ""
    return f", not {KINDS.get(type(value), 'another type')}"


def group_name(path: str, name: str) -> Iterator[Problem]:
    """Yield the problems of a group's name."""
    if not name:
        yield path, NOT_EMPTY
    yield from text(path, name, GROUP_LENGTH)


def unique_key(below: str, key: str | None, for_ms: int = 0) -> Iterator[Problem]:
    """Yield the problems of a key and of the time for which it stays taken. `below`: the path before their names."""
    if key == "":
        yield f"{below}unique", NOT_EMPTY
    yield from text(f"{below}unique", key or "", KEY_LENGTH)
    if not 0 <= for_ms <= MOST_UNIQUE_FOR_MS:
        yield f"{below}unique_for", between(0, MOST_UNIQUE_FOR_MS, for_ms)
    elif for_ms and key is None:
        yield f"{below}unique_for", "must be given together with unique"


def text(path: str, value: str, longest: int | None = None) -> Iterator[Problem]:
    """Yield the problems of a text, which may have at most `longest` characters."""
    if longest is not None and len(value) > longest:
        yield path, at_most(longest, "characters", len(value))
    if "\0" in value:
        yield path, NO_NUL
    if not is_utf8(value):
        yield path, VALID_UTF8


def is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def no_json(name: str, value: Mapping[str, Any] | Iterable[Any]) -> Iterator[Problem]:
    """Yield the problems of arguments that can't be sent as JSON, each with its place."""
    each = value.items() if isinstance(value, Mapping) else enumerate(value)
    if why_no_json(value):
        found = [(place, why) for place, item in each if (why := why_no_json(item))]
        for place, why in found:
            yield f"{name}.{place}" if isinstance(value, Mapping) else f"{name}[{place}]", why
        if not found:
            yield name, why_no_json(value) or ""


def why_no_json(value: Any) -> str | None:
    """Return why the value can't be sent as JSON; None if it can."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        return f"must be valid JSON: {problem}"
    return None
