"""Lay JSON out as the lines of a tree, exactly as it was written, with big integers and duplicate keys. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

MOST_BYTES = 256 * 1024
MOST_LINES = 2_000
DEEPEST = 32
# A branch starts open down to this depth and up to this size.
OPEN_DEPTH = 2
OPEN_ITEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A value, or the bracket that opens or closes an object or array."""

    kind: str  # "open", "close", "string", "number", "word" (true, false, null) or "brackets" ({} or []).
    text: str  # The value as JSON, or the bracket.
    key: str | None = None  # As JSON; None in an array and at the top.
    # Of an opening bracket: the number of items, the closing bracket, and whether the branch starts open.
    items: int = 0
    closing: str = ""
    is_open: bool = False
    is_last: bool = True  # No comma follows.


class Number(str):
    """A number as it is written; a float, or JavaScript, would change some."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object's members as they are written, duplicate keys included."""

    members: list[tuple[str, Any]]


class NoTree(ValueError):
    """The value is too large or too deep to show as a tree."""


def lines_of(data: bytes) -> list[Line]:
    """Return the lines of an object or array; empty when the data is neither, or too large or deep for a tree."""
    if len(data) > MOST_BYTES or data.lstrip()[:1] not in (b"{", b"["):
        return []
    try:
        return lines_of_json(data.decode())
    except ValueError:
        return []


def lines_of_json(text: str) -> list[Line]:
    """Return the lines of any JSON. Raises NoTree when it is too large or deep, and ValueError when it is not JSON."""
    try:
        value = json.loads(text, object_pairs_hook=Object, parse_int=Number, parse_float=Number, parse_constant=_refuse)
    except RecursionError:
        raise NoTree from None
    lines = list(islice(_lines(value, None, depth=0, is_last=True), MOST_LINES + 1))
    if len(lines) > MOST_LINES:
        raise NoTree
    return lines


def _refuse(word: str) -> None:
    raise ValueError(word)


def _lines(value: Any, key: str | None, *, depth: int, is_last: bool) -> Iterator[Line]:
    shown_key = None if key is None else _quoted(key)
    if isinstance(value, Object):
        yield from _branch("{", value.members, "}", shown_key, depth=depth, is_last=is_last)
    elif isinstance(value, list):
        yield from _branch("[", [(None, item) for item in value], "]", shown_key, depth=depth, is_last=is_last)
    elif isinstance(value, Number):
        yield Line(kind="number", text=value, key=shown_key, is_last=is_last)
    elif isinstance(value, str):
        yield Line(kind="string", text=_quoted(value), key=shown_key, is_last=is_last)
    else:
        yield Line(kind="word", text=json.dumps(value), key=shown_key, is_last=is_last)


def _branch(
    opening: str, items: Sequence[tuple[str | None, Any]], closing: str, key: str | None, *, depth: int, is_last: bool
) -> Iterator[Line]:
    if depth == DEEPEST:
        raise NoTree
    if not items:
        yield Line(kind="brackets", text=opening + closing, key=key, is_last=is_last)
        return
    is_open = depth == 0 or (depth < OPEN_DEPTH and len(items) <= OPEN_ITEMS)
    yield Line(kind="open", text=opening, key=key, items=len(items), closing=closing, is_open=is_open, is_last=is_last)
    for place, (name, item) in enumerate(items, start=1):
        yield from _lines(item, name, depth=depth + 1, is_last=place == len(items))
    yield Line(kind="close", text=closing, is_last=is_last)


def _quoted(text: str) -> str:
    # JSON can hold a lone surrogate as an escape, but a page can't hold the character: keep the escape.
    return json.dumps(text, ensure_ascii=False).encode(errors="backslashreplace").decode()
