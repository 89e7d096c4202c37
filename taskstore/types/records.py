"""The JSON objects that tasks carry, as values of types. Pure.

Numbers are integers from 0 to `MOST`. A null member counts as absent. Unknown members are ignored, because a later
version may have written them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from math import isfinite
from typing import Annotated, Any, ClassVar, NoReturn, Self, TypeVar

import msgspec
from msgspec import Meta, Struct, inspect

from .checks import Walk

MOST = 253_402_300_799_999  # The end of the year 9999 in milliseconds, the latest that all calendars support.

Number = Annotated[int, Meta(ge=0, le=MOST)]
Name = Annotated[str, Meta(min_length=1)]

Kind = TypeVar("Kind", bound=Struct)


class Record(Struct, frozen=True):
    """What the data of a task is. A class of records says what it is called, and the error of data that is none."""

    called: ClassVar[str] = "record"
    error_class: ClassVar[type[ValueError]] = ValueError
    read_object: ClassVar[Callable[[dict[str, Any]], dict[str, Any]] | None] = None  # For each object as it is read.

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse the data of a task, ignoring unknown members. Raises the class's error, which names the invalid one."""
        try:
            tree = json.loads(data, object_hook=cls.read_object, parse_constant=_refuse, parse_float=_finite)
            if b"\\u" in data:
                json.dumps(tree, ensure_ascii=False).encode()  # Raises for lone surrogates, which nothing could write.
            return value_of(cls, tree)
        except (ValueError, RecursionError) as problem:
            raise cls.error_class(f"invalid {cls.called}: {problem}") from None

    def encode(self) -> bytes:
        """Return the data for a task. Raises TypeError or ValueError if a member can't be written as JSON.

        Large outputs are compressed, which `decode` reads like others.
        """
        return ENCODER.encode(self).encode()


def value_of(kind: type[Kind], tree: Any) -> Kind:
    """Convert a JSON object to this type. Raises ValueError, which names the first invalid member."""
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError:
        pass
    walk = Walk()
    harmless = walk.along(tree, _type_of(kind))
    for path, why in walk.problems:
        raise ValueError(f"{'it' if path == 'body' else path} {why}")
    return msgspec.convert(harmless, kind)


@cache
def _type_of(kind: type[Struct]) -> inspect.Type:
    return inspect.type_info(kind)


def _members(value: Any) -> Any:
    if (pack := getattr(value, "packed", None)) and (made := pack()):
        return made
    if isinstance(value, Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_members)


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse(digits)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not valid JSON")
