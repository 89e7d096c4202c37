"""Checks of JSON by types: a look that names every wrong field, and records, the JSON that tasks carry. Pure.

The look walks the same types as the decoder, and takes place only when that has failed. Wrong values are replaced by
harmless ones as it goes, so that in the end what the right ones mean can be judged too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterator
from functools import cache
from math import isfinite
from typing import Annotated, Any, ClassVar, NoReturn, Self, TypeVar

import msgspec
from msgspec import Meta, Struct, inspect

from . import sentences
from .scalars import INT64_MAX, INT64_MIN, ONE_PART
from .sentences import is_utf8
from .tasks import Problem

T = TypeVar("T")

MOST_NAMED = 1_000  # So that the answer to a large body stays small.


class Walk:
    """One look at a value. `along` returns what takes its place: itself, where it is right.

    `most`: how many items a list may have. `given`: fields that did not come with the body, which may not name them.
    """

    def __init__(self, most: int | None = None, *, given: Collection[str] = ()) -> None:
        self.problems: list[Problem] = []
        self._most, self._given = most, given

    def along(self, value: Any, type_: inspect.Type, path: str = "") -> Any:
        match type_:
            case inspect.Metadata():
                return self.along(value, type_.type, path)
            case inspect.UnionType(types=(inner, inspect.NoneType())):
                return self.along(value, inner, path)
            case inspect.UnionType(types=types):
                meant = _meant(types, value)
                may_be_object = any(isinstance(each, inspect.StructType) for each in types)
                if isinstance(meant, inspect.VarTupleType) and may_be_object and not isinstance(value, list | tuple):
                    return self._wrong_kind(path, "a list or an object", value, [])
                return self.along(value, meant, path)
            case inspect.StructType():
                return self._object(value, type_, path)
            case inspect.VarTupleType() | inspect.ListType():
                return self._list(value, type_.item_type, path)
            case inspect.DictType():
                if not isinstance(value, dict):
                    return self._wrong_kind(path, "an object", value, {})
                return {name: self.along(each, type_.value_type, _below(path, name)) for name, each in value.items()}
            case inspect.AnyType():
                return value
        if why := why_wrong(type_, value):
            self._add(path or "body", why)
            return _harmless(type_)
        return value

    def _object(self, value: Any, type_: inspect.StructType, path: str) -> Any:
        fields = {field.encode_name: field for field in type_.fields}
        if not isinstance(value, dict):
            harmless = {name: _harmless(field.type) for name, field in fields.items() if field.required}
            return self._wrong_kind(path, "an object", value, harmless)
        if type_.forbid_unknown_fields:
            known = [name for name in fields if path or name not in self._given]
            for name in value:
                if name not in fields:
                    self._add(_below(path, name), sentences.unknown("field", known))
        return {
            name: self._member(value, field, _below(path, name))
            for name, field in fields.items()
            if value.get(name) is not None or field.required
        }

    def _member(self, members: dict[str, Any], field: inspect.Field, path: str) -> Any:
        value = members.get(field.encode_name)
        if value is None and not isinstance(field.type, inspect.AnyType):  # Null counts as absent.
            self._add(path, sentences.REQUIRED)
            return _harmless(field.type)
        return self.along(value, field.type, path)

    def _list(self, value: Any, item: inspect.Type, path: str) -> list[Any]:
        if not isinstance(value, list | tuple):
            return self._wrong_kind(path, "a list", value, [])
        if self._most is not None and len(value) > self._most:
            self._add(path, sentences.at_most(self._most, "items", len(value)))
            return []
        return [self.along(part, item, f"{path}[{place}]") for place, part in enumerate(value)]

    def _wrong_kind(self, path: str, right: str, value: Any, harmless: T) -> T:
        self._add(path or "body", f"must be {right}{sentences.but_not(value)}")
        return harmless

    def _add(self, path: str, text: str) -> None:
        if len(self.problems) < MOST_NAMED:
            self.problems.append((path, text))


def _meant(types: Collection[inspect.Type], value: Any) -> inspect.Type:
    """Return the type of a union that the value is meant to be of, by its kind."""
    objects, lists = (inspect.StructType, inspect.DictType), (inspect.VarTupleType, inspect.ListType)
    known: list[inspect.Type] = [each for each in types if not isinstance(each, inspect.NoneType)]
    for kinds in (objects, lists) if isinstance(value, dict) else (lists, objects):
        for each in known:
            if isinstance(each, kinds):
                return each
    return known[0]


def wrong_members(value: Struct, *names: str) -> Iterator[Problem]:
    """Yield the problems of these members of a value that a program has made, which are given."""
    for field in inspect.type_info(type(value)).fields:  # type: ignore[attr-defined]
        if field.name in names and (given := getattr(value, field.name)) is not None:
            walk = Walk()
            walk.along(given, field.type, field.encode_name)
            yield from walk.problems


def why_wrong(type_: inspect.Type, value: Any) -> str:
    """Return what is wrong with a value that has no parts; empty: nothing is."""
    is_number, is_text = type(value) in (int, float), isinstance(value, str)
    match type_:
        case inspect.IntType():
            least, most = _bounds(type_)
            if type(value) is int and least <= value <= most:
                return ""
            is_any = (least, most) == (INT64_MIN, INT64_MAX)
            return sentences.int64(value) if is_any else sentences.between(least, most, value)
        case inspect.FloatType(ge=least, le=most):
            return "" if is_number and (least is None or least <= value <= most) else sentences.share(value)
        case inspect.BoolType():
            return "" if isinstance(value, bool) else f"must be true or false{sentences.but_not(value)}"
        case inspect.EnumType():
            choices = [choice.value for choice in type_.cls]
            return "" if is_text and value in choices else sentences.one_of(choices, value)
        case inspect.BytesType():
            if is_text:
                return "" if _is_base64(value) else sentences.BASE64
            return f"must be a string in Base64{sentences.but_not(value)}"
        case inspect.StrType():
            return _why_wrong_text(type_, value) if is_text else f"must be a string{sentences.but_not(value)}"
    return "must be of another type"


def _why_wrong_text(type_: inspect.StrType, value: str) -> str:
    if not is_utf8(value):
        return sentences.VALID_UTF8
    if type_.pattern == ONE_PART and (not value or "/" in value or "\0" in value):
        return sentences.NO_SLASH
    if type_.min_length and not value:
        return sentences.NOT_EMPTY
    if type_.max_length is not None and len(value) > type_.max_length:
        return sentences.at_most(type_.max_length, "characters", len(value))
    return sentences.NO_NUL if type_.pattern and "\0" in value else ""


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except ValueError:
        return False
    return True


def _bounds(type_: inspect.IntType) -> tuple[int, int]:
    return INT64_MIN if type_.ge is None else type_.ge, INT64_MAX if type_.le is None else type_.le


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _harmless(type_: inspect.Type) -> Any:
    match type_:
        case inspect.Metadata():
            return _harmless(type_.type)
        case inspect.UnionType(types=(inner, inspect.NoneType())):
            return _harmless(inner)
        case inspect.VarTupleType() | inspect.ListType():
            return []
        case inspect.DictType():
            return {}
        case inspect.StructType():
            return {field.encode_name: _harmless(field.type) for field in type_.fields if field.required}
        case inspect.IntType():
            least, most = _bounds(type_)
            return min(max(least, 1), most)
        case inspect.EnumType():
            return next(iter(type_.cls)).value
        case inspect.StrType():
            return "-"
    return {inspect.BoolType: False, inspect.BytesType: "", inspect.FloatType: 0}.get(type(type_))


# ---- The JSON objects that tasks carry, as values of types. Pure


MOST = 253_402_300_799_999  # The end of the year 9999 in milliseconds, the latest that all calendars support.

Number = Annotated[int, Meta(ge=0, le=MOST)]
Name = Annotated[str, Meta(min_length=1)]

Kind = TypeVar("Kind", bound=Struct)


MORE = "taskstore.more"  # The name of no member: `more` holds those that others have added.


class Record(Struct, frozen=True):
    """What the data of a task is. A class of records says what it is called, and the error of data that is none."""

    called: ClassVar[str] = "record"
    error_class: ClassVar[type[ValueError]] = ValueError
    read_object: ClassVar[Callable[[dict[str, Any]], dict[str, Any]] | None] = None  # For each object as it is read.
    keeps_unknown: ClassVar[bool] = False  # Members of others, in `more`.

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse the data of a task, ignoring unknown members unless it keeps them.

        Raises the class's error, which names the invalid member.
        """
        try:
            # json.loads would take surrogates for UTF-8, and UTF-16, too.
            text = data.decode()
            tree = json.loads(text, object_hook=cls.read_object, parse_constant=_refuse, parse_float=_finite)
            if b"\\u" in data:
                json.dumps(tree, ensure_ascii=False).encode()  # Raises for lone surrogates, which nothing could write.
            if not cls.keeps_unknown or not isinstance(tree, dict) or tree.keys() <= (known := _names(cls)):
                return value_of(cls, tree)
            record = value_of(cls, {name: tree[name] for name in tree.keys() & known})
            return msgspec.structs.replace(record, more={name: tree[name] for name in tree.keys() - known})
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
def _names(kind: type[Struct]) -> frozenset[str]:
    return frozenset(kind.__struct_encode_fields__) - {MORE}


@cache
def _type_of(kind: type[Struct]) -> inspect.Type:
    return inspect.type_info(kind)


def _members(value: Any) -> Any:
    if (pack := getattr(value, "packed", None)) and (made := pack()) is not None:
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
