"""Match values at a path in JSON data: `data.user.id:42`, `data.tags:urgent`, `data.items.0.name:lamp`. Pure."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import orjson

from .grammar import Term

LARGE_NUMBER = re.compile(r"-?[0-9]{16,}")
BEFORE_VALUES = '" :,[\n\t\r'  # The characters that may precede a value in JSON,
AFTER_VALUES = '" ,]}\n\t\r'  # and those that may follow it.
LARGEST = 64 * 2**10  # Bytes of data that are parsed; larger data never matches.


def matches(term: Term, data: bytes | None) -> bool:
    """Return whether the data matches a `data.PATH` term. None and data that is not JSON have no values."""
    return term.is_excluded != (data is not None and _has(term.name, str(term.value), data))


def is_written_one_way(value: str) -> bool:
    """Return whether JSON can only write the value literally, so that a search for it may precede the parsing."""
    return value.isascii() and value.replace("_", "").replace("-", "").isalnum()


def _has(path: str, value: str, data: bytes) -> bool:
    # Most data with these bytes has them within a longer value.
    if is_written_one_way(value) and not _whole_value(value).search(data):
        return False
    # Only the slower parser keeps large integers exact.
    parse = json.loads if LARGE_NUMBER.fullmatch(value) else orjson.loads
    try:
        found: Any = parse(data)
        for part in path.split("."):
            found = found[int(part)] if isinstance(found, list) else found[part]
    except (ValueError, LookupError, TypeError, RecursionError):
        return False
    # A list matches by any of its members. Strings compare by their text, other values as JSON.
    members = found if isinstance(found, list) else [found]
    return any((one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) == value for one in members)


@lru_cache
def _whole_value(value: str) -> re.Pattern[bytes]:
    before, after = (f"[{re.escape(ends)}]" for ends in (BEFORE_VALUES, AFTER_VALUES))
    return re.compile(f"(?:^|{before}){re.escape(value)}(?:{after}|$)".encode())
