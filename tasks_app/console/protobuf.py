"""A task's data as the protobuf message that its type names, or as the fields of the wire format by number."""

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
# What else the library raises when a message can't be JSON: a time out of range, text that is none, Any in Any
# without an end.
NO_JSON = (Error, json_format.Error, ValueError, RecursionError)


class WireType(IntEnum):
    """How a field is written. There are two more, for 32 and for 64 bits."""

    VARINT = 0
    BYTES = 2
    GROUP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A message as a tree; without lines when there is none."""

    lines: Sequence[Line] = ()
    note: str = ""  # What the reader should know; says why when there are no lines.


def decode(data: bytes, size: int, data_type: str) -> Decoded:
    """The data as a message of the type, given as a type URL. `size` is that of the whole data."""
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
        return Decoded(lines=json_tree.lines_of_json(_json(message)), note=_left_out(message, name))
    except NoTree:
        raise
    except TypeError:
        note = "The data contains a message of an unknown type, so fields are shown by number."
        return Decoded(lines=_by_number(data), note=f"{note} {REMEDY}")
    except NO_JSON:
        return Decoded(lines=_by_number(data), note=f"The data is not a valid {name}, so fields are shown by number.")


def _json(message: Message) -> str:
    text: str = json_format.MessageToJson(
        message,
        preserving_proto_field_name=True,
        indent=None,
        ensure_ascii=False,
        descriptor_pool=descriptors.known().pool,
    )
    return text


def _left_out(message: Message, name: str) -> str:
    """What to say of fields that JSON leaves out because only another version of the type has them."""
    before = message.ByteSize()
    message.DiscardUnknownFields()
    return (
        f"The data has fields that the known version of {name} lacks. They are not shown."
        if message.ByteSize() < before
        else ""
    )


def _unknown(name: str, data: bytes) -> Decoded:
    if not data or _is_plain_text(data):  # Nearly any text could also be taken for fields.
        return Decoded()
    try:
        lines = _by_number(data)
    except DecodeError:
        return Decoded(note=f"The type {name} is unknown, and the data is not a protobuf message.")
    return Decoded(lines=lines, note=f"The type {name} is unknown, so fields are shown by number. {REMEDY}")


def _by_number(data: bytes) -> list[Line]:
    return json_tree.lines_of_value(_numbered(_fields(data), depth=0))


def _fields(data: bytes) -> UnknownFieldSet:
    """The fields of a message of any type. Raises DecodeError when it is no message."""
    return UnknownFieldSet(Empty.FromString(data))


def _numbered(fields: UnknownFieldSet, depth: int) -> json_tree.Object:
    # Any bytes may be taken for a message in a message, deeper than Python can go.
    if depth == json_tree.DEEPEST:
        raise NoTree
    numbered = [(str(field.field_number), _value(field, depth)) for field in fields]  # type: ignore[attr-defined]
    return json_tree.Object(numbered)


def _value(field: Any, depth: int) -> Any:
    match field.wire_type:
        case WireType.BYTES:
            return _text_or_message(field.data, depth)
        case WireType.GROUP:
            return _numbered(field.data, depth + 1)
        case WireType.VARINT:
            return json_tree.Number(field.data)
        case _:  # A number or a fraction: only the type would say.
            return json_tree.Number(f"{field.data:#x}")


def _text_or_message(data: bytes, depth: int) -> Any:
    text = _text(data)
    if _is_plain_text(data):
        return text
    try:
        return _numbered(_fields(data), depth + 1)
    except DecodeError:
        return data if text is None else text


def _is_plain_text(data: bytes) -> bool:
    # A line break is also how a message begins whose first field is a text.
    return _text(data) is not None and not data.startswith((b"\t", b"\n", b"\r"))


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(letter.isprintable() or letter in "\t\n\r" for letter in text) else None
