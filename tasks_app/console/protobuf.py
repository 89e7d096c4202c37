"""Decode a task's data as the protobuf message that its type names, or as the wire format's numbered fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Error, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from ..reading import descriptors
from . import json_tree
from .json_tree import Line, NoTree

MOST_BYTES = 64 * 1024
REMEDY = "Set TASKSTORE_DESCRIPTORS to its descriptors."
# The library raises all of these for a message that has no JSON form: a time out of range, text that is not UTF-8,
# endlessly nested Any.
NO_JSON = (Error, json_format.Error, ValueError, RecursionError)


class WireType(IntEnum):
    """The encoding of a field. The two other types hold 32 and 64 bits."""

    VARINT = 0
    BYTES = 2
    GROUP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A message as a tree; without lines when it can't be decoded."""

    lines: Sequence[Line] = ()
    note: str = ""  # For the reader; says why there are no lines.


def decode(data: bytes, size: int, data_type: str) -> Decoded:
    """Decode the data as a message of the type, given as a type URL. `size` is the size of the whole data."""
    name = data_type.rpartition("/")[2] or data_type
    if size > MOST_BYTES:
        return Decoded(note=f"Data larger than 64 kB is not decoded. Its type is {name}.")
    kind = descriptors.message_type(name)
    try:
        return _known(kind, name, data) if kind else _unknown(name, data)
    except NoTree:
        return Decoded(note=f"This {name} is too deep or too long to decode here.")


def _known(kind: type[Message], name: str, data: bytes) -> Decoded:
    try:
        message = kind.FromString(data)
    except DecodeError:
        return Decoded(note=f"The data is not a valid {name}.")
    try:
        text = json_format.MessageToJson(
            message,
            preserving_proto_field_name=True,
            indent=None,
            ensure_ascii=False,
            descriptor_pool=descriptors.known().pool,
        )
        lines = json_tree.lines_of_json(text)
        # JSON leaves out fields that only another version of the type has.
        before = message.ByteSize()
        message.DiscardUnknownFields()
        is_whole = message.ByteSize() == before
        note = "" if is_whole else f"The data has fields that the known version of {name} lacks. They are not shown."
        return Decoded(lines=lines, note=note)
    except NoTree:
        raise
    except TypeError:
        note = "The data contains a message of an unknown type, so fields are shown by number."
        return Decoded(lines=_by_number(data), note=f"{note} {REMEDY}")
    except NO_JSON:
        return Decoded(lines=_by_number(data), note=f"The data is not a valid {name}, so fields are shown by number.")


def _unknown(name: str, data: bytes) -> Decoded:
    if not data or _is_plain_text(data):  # Nearly any text also decodes as fields.
        return Decoded()
    try:
        lines = _by_number(data)
    except DecodeError:
        return Decoded(note=f"The type {name} is unknown, and the data is not a protobuf message.")
    return Decoded(lines=lines, note=f"The type {name} is unknown, so fields are shown by number. {REMEDY}")


def _by_number(data: bytes) -> list[Line]:
    return json_tree.lines_of_value(_numbered(_fields(data), depth=0))


def _fields(data: bytes) -> UnknownFieldSet:
    """Return the fields of a message of any type. Raises DecodeError when the data is not a message."""
    return UnknownFieldSet(Empty.FromString(data))


def _numbered(fields: UnknownFieldSet, depth: int) -> json_tree.Object:
    # Bytes may decode as nested messages deeper than Python can recurse.
    if depth == json_tree.DEEPEST:
        raise NoTree
    members: list[tuple[str, Any]] = []
    for field in fields:  # type: ignore[attr-defined]
        value: Any = None
        match field.wire_type:
            case WireType.BYTES:
                value = _text_or_message(field.data, depth)
            case WireType.GROUP:
                value = _numbered(field.data, depth + 1)
            case WireType.VARINT:
                value = json_tree.Number(field.data)
            case _:  # An integer or a fraction; only the type knows which.
                value = json_tree.Number(f"{field.data:#x}")
        members.append((str(field.field_number), value))
    return json_tree.Object(members)


def _text_or_message(data: bytes, depth: int) -> Any:
    text = _text(data)
    if _is_plain_text(data):
        return text
    try:
        return _numbered(_fields(data), depth + 1)
    except DecodeError:
        return data if text is None else text


def _is_plain_text(data: bytes) -> bool:
    # A message whose first field is a text also begins with a line break.
    return _text(data) is not None and not data.startswith((b"\t", b"\n", b"\r"))


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(letter.isprintable() or letter in "\t\n\r" for letter in text) else None
