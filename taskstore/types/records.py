"""Data classes as tasks carry them: as objects of JSON. Pure.

Numbers are whole and from 0 to `MOST`. What is null counts as absent, and members that the class does not know are left
out: a later version may have written more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from enum import StrEnum
from functools import cache
from math import isfinite
from types import NoneType
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from . import sentences

MOST = 253_402_300_799_999  # Of any number: in milliseconds the end of the year 9999, which every calendar can show.

Kind = TypeVar("Kind")

# What JSON must hold for a member, and what is said when it does not.
JSON_TYPES: Mapping[Any, tuple[type, str]] = {
    str: (str, "must be a string"),
    int: (int, sentences.between(0, MOST)),
    bool: (bool, "must be true or false"),
    Sequence: (list, "must be a list"),
    tuple: (list, "must be a list"),
    Mapping: (dict, "must be an object"),
}


def decode(kind: type[Kind], data: bytes) -> Kind:
    """Raises ValueError or RecursionError that names what is wrong."""
    tree = json.loads(data, parse_constant=_refuse, parse_float=_finite)
    json.dumps(tree, ensure_ascii=False).encode()  # No lone surrogates, which nobody could write again.
    return value_of(kind, tree)


def encode(record: Any) -> bytes:
    """Raises TypeError or ValueError when a member is no JSON."""
    return json.dumps(asdict(record), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def value_of(kind: type[Kind], tree: Any, path: str = "") -> Kind:
    """The value of this class that an object of JSON holds. Raises ValueError that names what is wrong."""
    if type(tree) is not dict:
        raise ValueError(f"{path.rstrip('.') or 'it'} must be an object")
    types = _types(kind)  # type: ignore[arg-type]
    members = {name: _member(types[name], tree[name], path + name) for name in types if tree.get(name) is not None}
    for each in fields(kind):  # type: ignore[arg-type]
        if _is_needed(each) and not members.get(each.name):
            raise ValueError(f"{path}{each.name} {sentences.REQUIRED}")
    return kind(**members)


def _is_needed(member: Field[Any]) -> bool:
    return member.default is MISSING and member.default_factory is MISSING


@cache
def _types(kind: type[Any]) -> Mapping[str, Any]:
    """What the members of a class are, without the None that some may be."""
    return {name: _without_none(hint) for name, hint in get_type_hints(kind).items()}


def _without_none(hint: Any) -> Any:
    choices = [each for each in get_args(hint) if each is not NoneType]
    return choices[0] if NoneType in get_args(hint) else hint


def _member(hint: Any, value: Any, path: str) -> Any:
    """The value of a member, as these classes have it."""
    if hint is Any:
        return value
    if is_dataclass(hint):
        return value_of(hint, value, f"{path}.")  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _choice(hint, value, path)
    shape = get_origin(hint) or hint
    _check(shape, value, path)
    if shape is tuple:
        return tuple(_member(get_args(hint)[0], each, f"{path}[{place}]") for place, each in enumerate(value))
    return value


def _choice(choices: type[StrEnum], value: Any, path: str) -> StrEnum:
    if value not in list(choices):
        raise ValueError(f"{path} {sentences.one_of(choices, value)}")
    return choices(value)


def _check(shape: Any, value: Any, path: str) -> None:
    right, words = JSON_TYPES[shape]
    # Not isinstance: true would be a number then.
    if type(value) is not right or (type(value) is int and not 0 <= value <= MOST):
        raise ValueError(f"{path} {words}{sentences.but_not(value)}")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse(digits)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not valid JSON")
