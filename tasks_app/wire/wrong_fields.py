"""The second, slower look at a body that was refused: it names every field that is wrong.

It walks the same types as the decoder. Wrong fields are replaced by harmless ones as it
goes, so that in the end the values of the right ones can be judged too.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import convert, inspect

from taskstore.types.requests import Asked
from taskstore.types.tasks import Problem

from ..core.validation import INT64_MAX, INT64_MIN, is_utf8
from ..managers import limits

MOST_NAMED = 1_000  # So that the answer to a large body stays small.


def wrong_fields(tree: Any, asked: type[Asked]) -> dict[str, list[str]]:
    """What would be right, by the path of each wrong field: `{"updates[2].id": ["an integer, not text"]}`."""
    walk = Walk()
    harmless = walk.along(tree, inspect.type_info(asked), "")
    fields = dict(walk.problems)
    for path, text in convert(harmless, asked).every_problem():
        fields.setdefault(path, text)
    return {path: [text] for path, text in fields.items()}


class Scalar(NamedTuple):
    """What a value that has no parts must be."""

    right: str
    is_right: Callable[[Any], bool]
    harmless: Any


def _is_base64(value: Any) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        return False
    return True


TEXT = Scalar("text that can be written as UTF-8", lambda value: isinstance(value, str) and is_utf8(value), "-")
BASE64 = Scalar("text in base64", _is_base64, "")
TRUTH = Scalar("true or false", lambda value: isinstance(value, bool), False)
SCALARS: dict[type[inspect.Type], Scalar] = {
    inspect.StrType: TEXT,
    inspect.BytesType: BASE64,
    inspect.BoolType: TRUTH,
}
KINDS = {dict: "an object", list: "a list", str: "this text", bool: "a truth value", int: "this integer"}


class Walk:
    """One look at a body. `along` answers with what takes the place of a value: itself, where it is right."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def along(self, value: Any, type_: inspect.Type, path: str) -> Any:
        match type_:
            case inspect.Metadata():
                return self.along(value, type_.type, path)
            case inspect.StructType():
                return self._object(value, type_, path)
            case inspect.VarTupleType():
                return self._list(value, type_.item_type, path)
            case inspect.DictType(value_type=inspect.AnyType()):
                return self._anything_named(value, path)
            case inspect.DictType():
                return self._texts(value, path)
            case inspect.AnyType():
                return value
        return self._scalar(value, _scalar_of(type_), path)

    def _object(self, value: Any, type_: inspect.StructType, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._wrong(path, "an object", value)
            return {field.encode_name: _harmless(field.type) for field in type_.fields if field.required}
        fields = {field.encode_name: field for field in type_.fields}
        for name in filter(lambda name: name not in fields, value):
            self._add(_below(path, name), f"no such field; there are {', '.join(fields)}")
        return {
            name: self._member(value, field, _below(path, name))
            for name, field in fields.items()
            if name in value or field.required
        }

    def _member(self, members: dict[str, Any], field: inspect.Field, path: str) -> Any:
        if field.encode_name in members:
            return self.along(members[field.encode_name], field.type, path)
        self._add(path, "missing: it is required")
        return _harmless(field.type)

    def _list(self, value: Any, item: inspect.Type, path: str) -> list[Any]:
        if isinstance(value, list) and len(value) > limits().changes:
            self._add(path, f"at most {limits().changes} at once, not {len(value)}")
            return []
        if isinstance(value, list):
            return [self.along(part, item, f"{path}[{place}]") for place, part in enumerate(value)]
        self._wrong(path, "a list", value)
        return []

    def _anything_named(self, value: Any, path: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self._wrong(path, "an object", value)
        return {}

    def _texts(self, value: Any, path: str) -> dict[str, str]:
        if isinstance(value, dict):
            return {name: self._scalar(text, TEXT, _below(path, name)) for name, text in value.items()}
        self._wrong(path, "an object", value)
        return {}

    def _scalar(self, value: Any, scalar: Scalar, path: str) -> Any:
        if scalar.is_right(value):
            return value
        self._wrong(path, scalar.right, value)
        return scalar.harmless

    def _wrong(self, path: str, right: str, value: Any) -> None:
        self._add(path or "body", f"{right}, not {KINDS.get(type(value), 'this number')}")

    def _add(self, path: str, text: str) -> None:
        if len(self.problems) < MOST_NAMED:
            self.problems.append((path, text))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _scalar_of(type_: inspect.Type) -> Scalar:
    match type_:
        case inspect.IntType(ge=int(least), le=int(most)):
            is_any = (least, most) == (INT64_MIN, INT64_MAX)
            right = "an integer of 64 bits" if is_any else f"an integer from {least} to {most}"
            return Scalar(right, lambda value: type(value) is int and least <= value <= most, max(least, 1))
        case inspect.EnumType():
            choices = [choice.value for choice in type_.cls]
            return Scalar(f"one of {', '.join(choices)}", lambda value: value in choices, choices[0])
    return SCALARS[type(type_)]


def _harmless(type_: inspect.Type) -> Any:
    while isinstance(type_, inspect.Metadata):
        type_ = type_.type
    return [] if isinstance(type_, inspect.VarTupleType) else _scalar_of(type_).harmless
