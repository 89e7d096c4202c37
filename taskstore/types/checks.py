"""Check text, which both databases of the server must be able to store. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from . import sentences
from .scalars import GROUP_LENGTH, KEY_LENGTH, MOST_UNIQUE_FOR_MS
from .tasks import Problem


def group_name(path: str, name: str) -> Iterator[Problem]:
    """Yield the problems of a group's name."""
    if not name:
        yield path, sentences.NOT_EMPTY
    yield from text(path, name, GROUP_LENGTH)


def unique_key(below: str, key: str | None, for_ms: int = 0) -> Iterator[Problem]:
    """Yield the problems of a key and of the time for which it stays taken. `below`: the path before their names."""
    if key == "":
        yield f"{below}unique", sentences.NOT_EMPTY
    yield from text(f"{below}unique", key or "", KEY_LENGTH)
    if not 0 <= for_ms <= MOST_UNIQUE_FOR_MS:
        yield f"{below}unique_for", sentences.between(0, MOST_UNIQUE_FOR_MS, for_ms)
    elif for_ms and key is None:
        yield f"{below}unique_for", "must be given together with unique"


def text(path: str, value: str, longest: int | None = None) -> Iterator[Problem]:
    """Yield the problems of a text, which may have at most `longest` characters."""
    if longest is not None and len(value) > longest:
        yield path, sentences.at_most(longest, "characters", len(value))
    if "\0" in value:
        yield path, sentences.NO_NUL
    if not is_utf8(value):
        yield path, sentences.VALID_UTF8


def is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def why_no_json(value: Any) -> str | None:
    """Return why the value can't be sent as JSON; None if it can."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        return f"must be valid JSON: {problem}"
    return None
