"""What lies at a path in JSON data: `data.user.id:42`, `data.tags:urgent`, `data.items.0.name:lamp`. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from .grammar import Term

LARGE_NUMBER = re.compile(r"-?[0-9]{16,}")
LARGEST = 64 * 2**10  # Bytes of data that are parsed; larger ones are no match.


def matches(term: Term, data: bytes | None) -> bool:
    """Whether the data meets a `data.PATH` term. None, or what is no JSON, has nothing at any path."""
    # Large integers are exact in the slower parser only.
    parse = json.loads if LARGE_NUMBER.fullmatch(str(term.value)) else orjson.loads
    return term.is_excluded != (term.value in set(_values_at(term.name, data, parse)))


def _values_at(path: str, data: bytes | None, parse: Callable[[bytes], Any]) -> Iterator[str]:
    """In JSON's words, texts as they are; of a list each of its members, too."""
    try:
        value = parse(data) if data is not None else {}
        for part in path.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
    except (ValueError, LookupError, TypeError, RecursionError):
        return
    for one in value if isinstance(value, list) else [value]:
        yield _written(one)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
