"""JSON as the lines of a tree, exactly as it was written: big integers, double keys and all. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

MOST_BYTES = 256 * 1024
MOST_LINES = 2_000
DEEPEST = 32
LINE_BYTES = 32  # Of bytes that are no text.
# Where a branch begins closed: deep down, or when it is large.
OPEN_DEPTH = 2
OPEN_ITEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A value, or where an object or array opens or closes."""

    kind: str  # "open", "close", "string", "number", "bytes", "word" (true, false, null) or "brackets" ({} or []).
    text: str  # The value as JSON, or the bracket.
    key: str | None = None  # As JSON; None in an array and at the top.
    items: int = 0  # Of what opens: how many items it has.
    closing: str = ""  # Of what opens: the bracket that will close it.
    is_open: bool = False  # Of what opens: whether it begins open.
    is_last: bool = True  # No comma follows.


class Number(str):
    """A number as it is written: a float, or JavaScript, would change some."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object's members as they are written, also when a key comes twice."""

    members: list[tuple[str, Any]]


class NoTree(ValueError):
    """It is more than people read as a tree."""


def lines_of(data: bytes) -> list[Line]:
    """The lines of an object or array; empty when the data is neither, or too large or deep for a tree."""
    if len(data) > MOST_BYTES or data.lstrip()[:1] not in (b"{", b"["):
        return []
    try:
        return lines_of_json(data.decode())
    except ValueError:
        return []


def lines_of_json(text: str) -> list[Line]:
    """The lines of any JSON. Raises NoTree when it is too large or deep, and ValueError when it is no JSON."""
    try:
        value = json.loads(text, object_pairs_hook=Object, parse_int=Number, parse_float=Number, parse_constant=_refuse)
    except RecursionError:
        raise NoTree from None
    return lines_of_value(value)


def lines_of_value(value: Any) -> list[Line]:
    """The lines of what JSON is made of here: Object, list, str, Number, words, and bytes. Raises NoTree."""
    return _limited(_lines(value, None, depth=0, is_last=True))


def _refuse(word: str) -> None:
    raise ValueError(word)


def _limited(lines: Iterator[Line]) -> list[Line]:
    shown = [line for line, _ in zip(lines, range(MOST_LINES + 1), strict=False)]
    if len(shown) > MOST_LINES:
        raise NoTree
    return shown


def _lines(value: Any, key: str | None, *, depth: int, is_last: bool) -> Iterator[Line]:
    shown_key = None if key is None else _quoted(key)
    if isinstance(value, Object):
        yield from _branch("{", value.members, "}", shown_key, depth=depth, is_last=is_last)
    elif isinstance(value, list):
        yield from _branch("[", [(None, item) for item in value], "]", shown_key, depth=depth, is_last=is_last)
    elif isinstance(value, Number):
        yield Line(kind="number", text=value, key=shown_key, is_last=is_last)
    elif isinstance(value, bytes):
        yield Line(kind="bytes", text=_hex(value), key=shown_key, is_last=is_last)
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


def _hex(value: bytes) -> str:
    return value[:LINE_BYTES].hex(" ") + (" …" if len(value) > LINE_BYTES else "")


def _quoted(text: str) -> str:
    # A lone surrogate can stand in JSON as an escape, but in no page: it stays an escape.
    return json.dumps(text, ensure_ascii=False).encode(errors="backslashreplace").decode()
