"""The second, slower look at a body that was refused: it names every field that is wrong.

It walks the same types as the decoder. Wrong fields are replaced by harmless ones as it
goes, so that in the end the values of the right ones can be judged too.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from msgspec import convert, inspect

from taskstore.types import sentences
from taskstore.types.requests import Asked
from taskstore.types.scalars import INT64_MAX, INT64_MIN
from taskstore.types.sentences import is_utf8
from taskstore.types.tasks import Problem

from ..managers import limits
from .requests import every_problem

MOST_NAMED = 1_000  # So that the answer to a large body stays small.


def wrong_fields(tree: Any, asked: type[Asked]) -> dict[str, list[str]]:
    """Return what is wrong, by the path of each wrong field: `{"limit": ["must be an integer, not a string"]}`."""
    walk = Walk()
    harmless = walk.along(tree, inspect.type_info(asked), "")
    fields = dict(walk.problems)
    for path, text in every_problem(convert(harmless, asked)):
        fields.setdefault(path, text)
    return {path: [text] for path, text in fields.items()}


class Scalar(NamedTuple):
    """The requirement for a value that has no parts."""

    wrong: Callable[[Any], str]  # What is wrong with a value.
    is_right: Callable[[Any], bool]
    harmless: Any


def _is_base64(value: Any) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        return False
    return True


def _wrong_text(value: Any) -> str:
    return sentences.VALID_UTF8 if isinstance(value, str) else f"must be a string{sentences.but_not(value)}"


def _wrong_base64(value: Any) -> str:
    return sentences.BASE64 if isinstance(value, str) else f"must be a string in Base64{sentences.but_not(value)}"


TEXT = Scalar(_wrong_text, lambda value: isinstance(value, str) and is_utf8(value), "-")
BASE64 = Scalar(_wrong_base64, _is_base64, "")
TRUTH = Scalar(
    lambda value: f"must be true or false{sentences.but_not(value)}", lambda value: isinstance(value, bool), False
)
SCALARS: dict[type[inspect.Type], Scalar] = {
    inspect.StrType: TEXT,
    inspect.BytesType: BASE64,
    inspect.BoolType: TRUTH,
}


class Walk:
    """One look at a body. `along` answers with what takes the place of a value: itself, where it is right."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def along(self, value: Any, type_: inspect.Type, path: str) -> Any:
        match type_:
            case inspect.Metadata():
                return self.along(value, type_.type, path)
            case inspect.UnionType(types=(inner, inspect.NoneType())):  # Null members are no longer there.
                return self.along(value, inner, path)
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
            self._wrong_kind(path, "an object", value)
            return {field.encode_name: _harmless(field.type) for field in type_.fields if field.required}
        fields = {field.encode_name: field for field in type_.fields}
        for name in filter(lambda name: name not in fields, value):
            self._add(_below(path, name), sentences.unknown("field", fields))
        return {
            name: self._member(value, field, _below(path, name))
            for name, field in fields.items()
            if name in value or field.required
        }

    def _member(self, members: dict[str, Any], field: inspect.Field, path: str) -> Any:
        if field.encode_name in members:
            return self.along(members[field.encode_name], field.type, path)
        self._add(path, sentences.REQUIRED)
        return _harmless(field.type)

    def _list(self, value: Any, item: inspect.Type, path: str) -> list[Any]:
        if isinstance(value, list) and len(value) > limits().changes:
            self._add(path, sentences.at_most(limits().changes, "items", len(value)))
            return []
        if isinstance(value, list):
            return [self.along(part, item, f"{path}[{place}]") for place, part in enumerate(value)]
        self._wrong_kind(path, "a list", value)
        return []

    def _anything_named(self, value: Any, path: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self._wrong_kind(path, "an object", value)
        return {}

    def _texts(self, value: Any, path: str) -> dict[str, str]:
        if isinstance(value, dict):
            return {name: self._scalar(text, TEXT, _below(path, name)) for name, text in value.items()}
        self._wrong_kind(path, "an object", value)
        return {}

    def _scalar(self, value: Any, scalar: Scalar, path: str) -> Any:
        if scalar.is_right(value):
            return value
        self._add(path or "body", scalar.wrong(value))
        return scalar.harmless

    def _wrong_kind(self, path: str, right: str, value: Any) -> None:
        self._add(path or "body", f"must be {right}{sentences.but_not(value)}")

    def _add(self, path: str, text: str) -> None:
        if len(self.problems) < MOST_NAMED:
            self.problems.append((path, text))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _scalar_of(type_: inspect.Type) -> Scalar:
    match type_:
        case inspect.IntType(ge=int(least), le=int(most)):
            is_any = (least, most) == (INT64_MIN, INT64_MAX)
            wrong = sentences.int64 if is_any else partial(sentences.between, least, most)
            return Scalar(wrong, lambda value: type(value) is int and least <= value <= most, max(least, 1))
        case inspect.FloatType(ge=0, le=1):
            return Scalar(sentences.share, lambda value: type(value) in (int, float) and 0 <= value <= 1, 0)
        case inspect.EnumType():
            choices = [choice.value for choice in type_.cls]
            return Scalar(partial(sentences.one_of, choices), lambda value: value in choices, choices[0])
    return SCALARS[type(type_)]


def _harmless(type_: inspect.Type) -> Any:
    while isinstance(type_, inspect.Metadata):
        type_ = type_.type
    return [] if isinstance(type_, inspect.VarTupleType) else _scalar_of(type_).harmless
