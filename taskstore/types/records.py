"""Convert data classes to and from the JSON objects that tasks carry. Pure.

Numbers are integers from 0 to `MOST`. A null member counts as absent. Unknown members are ignored, because a later
version may have written them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from math import isfinite
from types import NoneType
from typing import Any, NoReturn, Self, TypeVar, get_args, get_origin, get_type_hints

from . import sentences

MOST = 253_402_300_799_999  # The end of the year 9999 in milliseconds, the latest that all calendars support.

Kind = TypeVar("Kind")

# The Python type of each member's JSON value, and what its errors say.
JSON_TYPES: Mapping[Any, tuple[type, str]] = {
    str: (str, "must be a string"),
    int: (int, sentences.between(0, MOST)),
    bool: (bool, "must be true or false"),
    Sequence: (list, "must be a list"),
    tuple: (list, "must be a list"),
    Mapping: (dict, "must be an object"),
}


class Record:
    """What the data of a task is. A class of records says what it is called, and the error of data that is none."""

    __slots__ = ()
    _called, _error = "record", ValueError

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse the data of a task, ignoring unknown members. Raises the class's error, which names the invalid one."""
        try:
            tree = json.loads(data, parse_constant=_refuse, parse_float=_finite)
            if b"\\u" in data:
                json.dumps(tree, ensure_ascii=False).encode()  # Raises for lone surrogates, which nothing could write.
            return value_of(cls, tree)
        except (ValueError, RecursionError) as problem:
            raise cls._error(f"invalid {cls._called}: {problem}") from None

    def encode(self, *, packed: bool = True) -> bytes:
        """Return the data for a task. Raises TypeError or ValueError if a member can't be written as JSON.

        `packed`: whether to compress large outputs, which `decode` reads like others.
        """
        return ENCODER.encode(tree_of(self, packed=packed)).encode()


ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def tree_of(value: Any, *, packed: bool = False) -> Any:
    """Return a data class with all that it contains as JSON objects. What is JSON already is not copied."""
    kind = type(value)
    if names := names_of(kind):  # type: ignore[arg-type]
        pack = getattr(value, "packed", None) if packed else None
        return (pack and pack()) or {name: tree_of(getattr(value, name), packed=packed) for name in names}
    return [tree_of(each, packed=packed) for each in value] if kind is tuple else value


@cache
def names_of(kind: Any) -> tuple[str, ...]:
    """Return the names of a data class's members; an empty tuple for other classes."""
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else ()


def value_of(kind: type[Kind], tree: Any, path: str = "") -> Kind:
    """Convert a JSON object to this class. Raises ValueError, which names the invalid member."""
    if type(tree) is not dict:
        raise ValueError(f"{path.rstrip('.') or 'it'} must be an object")
    if unpacked := getattr(kind, "unpacked", None):
        tree = unpacked(tree)
    types = _types(kind)  # type: ignore[arg-type]
    members = {name: _member(types[name], tree[name], path + name) for name in types if tree.get(name) is not None}
    for name in _needed(kind):  # type: ignore[arg-type]
        if not members.get(name):
            raise ValueError(f"{path}{name} {sentences.REQUIRED}")
    return kind(**members)


@cache
def _needed(kind: Any) -> tuple[str, ...]:
    """Return the names of the members without a default."""
    return tuple(each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING)


@cache
def _types(kind: Any) -> Mapping[str, Any]:
    """Return the types of a class's members; `X | None` becomes X."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        choices = [each for each in get_args(hint) if each is not NoneType]
        found[name] = choices[0] if NoneType in get_args(hint) else hint
    return found


def _member(hint: Any, value: Any, path: str) -> Any:
    """Check a JSON value and convert it to the type of a member."""
    if hint is Any:
        return value
    if names_of(hint):
        return value_of(hint, value, f"{path}.")
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if value not in list(hint):
            raise ValueError(f"{path} {sentences.one_of(hint, value)}")
        return hint(value)
    shape = get_origin(hint) or hint
    right, words = JSON_TYPES[shape]
    # Not isinstance, which would accept true as an integer.
    found = type(value)
    if found is not right or (found is int and not 0 <= value <= MOST):
        raise ValueError(f"{path} {words}{sentences.but_not(value)}")
    if shape is tuple:
        return tuple(_member(get_args(hint)[0], each, f"{path}[{place}]") for place, each in enumerate(value))
    return value


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse(digits)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not valid JSON")
