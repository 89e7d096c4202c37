"""What lies at a path in JSON data: `data.user.id:42`, `data.tags:urgent`, `data.items.0.name:lamp`. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import orjson

from .grammar import Term

LARGE_NUMBER = re.compile(r"-?[0-9]{16,}")
BEFORE_VALUES = '" :,[\n\t\r'  # What may stand before a value in JSON,
AFTER_VALUES = '" ,]}\n\t\r'  # and what after it.
LARGEST = 64 * 2**10  # Bytes of data that are parsed; larger ones are no match.


def matches(term: Term, data: bytes | None) -> bool:
    """Whether the data meets a `data.PATH` term. None, or what is no JSON, has nothing at any path."""
    return term.is_excluded != (data is not None and _has(term.name, str(term.value), data))


def is_written_one_way(value: str) -> bool:
    """Whether JSON has the value as it is, so that it can be looked for before anything is parsed."""
    return value.isascii() and value.replace("_", "").replace("-", "").isalnum()


def _has(path: str, value: str, data: bytes) -> bool:
    # Most of what holds the bytes holds them as a part of something longer.
    if is_written_one_way(value) and not _as_a_whole(value).search(data):
        return False
    # Large integers are exact in the slower parser only.
    parse = json.loads if LARGE_NUMBER.fullmatch(value) else orjson.loads
    return value in set(_values_at(path, data, parse))


@lru_cache
def _as_a_whole(value: str) -> re.Pattern[bytes]:
    before, after = (f"[{re.escape(ends)}]" for ends in (BEFORE_VALUES, AFTER_VALUES))
    return re.compile(f"(?:^|{before}){re.escape(value)}(?:{after}|$)".encode())


def _values_at(path: str, data: bytes, parse: Callable[[bytes], Any]) -> Iterator[str]:
    """In JSON's words, texts as they are; of a list each of its members, too."""
    try:
        value = parse(data)
        for part in path.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
    except (ValueError, LookupError, TypeError, RecursionError):
        return
    for one in value if isinstance(value, list) else [value]:
        yield _written(one)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
