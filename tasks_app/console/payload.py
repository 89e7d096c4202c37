"""Show a task's data as a line, as text, as a tree (of JSON or a protobuf message) or as hex. Makes no HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Error, Message

from taskstore.types.texts import visible

from ..reading import descriptors
from . import json_tree
from .json_tree import Line, NoTree

READ_BYTES = json_tree.MOST_BYTES  # No form needs more.
TEXT_BYTES = 64 * 1024  # The rest can be downloaded.
HEX_BYTES = 16 * 1024
HEX_WIDTH = 16
LINE_BYTES = 32  # Of binary data, in a list.

MOST_BYTES = 64 * 1024
REMEDY = "Set TASKSTORE_DESCRIPTORS to its descriptors."
# The library raises all of these for a message that has no JSON form: a time out of range, text that is not UTF-8,
# endlessly nested Any.
NO_JSON = (Error, json_format.Error, ValueError, RecursionError)


class Form(StrEnum):
    """A way to show data."""

    MESSAGE = "message"
    TREE = "tree"
    TEXT = "text"
    HEX = "hex"


# The forms that show only the beginning.
SHOWN_BYTES = {Form.TEXT: TEXT_BYTES, Form.HEX: HEX_BYTES}
# The kind of data, by the best form that can show it.
KINDS = {Form.MESSAGE: "protobuf", Form.TREE: "JSON", Form.TEXT: "text", Form.HEX: "binary"}


class HexLine(NamedTuple):
    """`HEX_WIDTH` bytes of data, or fewer at its end."""

    offset: str
    bytes: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadView:
    """Data in one form, and the forms that can show it."""

    form: Form
    forms: Sequence[Form]
    kind: str  # "protobuf", "JSON", "text", "binary" or "empty".
    size: int  # Bytes.
    is_cut: bool
    text: str = ""
    tree: Sequence[json_tree.Line] = ()  # Of a message or of JSON.
    note: str = ""  # About the message.
    hex: Sequence[HexLine] = ()


def show(data: bytes, wanted: Form | None = None, *, size: int | None = None, data_type: str = "") -> PayloadView:
    """Return the data in the wanted form, or in the best one when that is impossible.

    For data of more than `READ_BYTES`, the beginning is enough; `size` is then the size of the whole.
    `data_type` is the type URL of data that is a protobuf message.
    """
    size = len(data) if size is None else size
    message = decode(data, size, data_type) if data_type.strip("/") else Decoded()
    tree = json_tree.lines_of(data) if size == len(data) else []
    text = text_of(data[:TEXT_BYTES], is_whole=size <= TEXT_BYTES)
    possible = {Form.MESSAGE: bool(message.lines), Form.TREE: bool(tree), Form.TEXT: text is not None, Form.HEX: True}
    forms = [form for form, is_possible in possible.items() if is_possible]  # The best one first.
    form = wanted if wanted in forms else forms[0]
    return PayloadView(
        form=form,
        forms=forms,
        kind=KINDS[forms[0]] if size or message.lines else "empty",
        size=size,
        is_cut=size > SHOWN_BYTES.get(form, size),
        text=text or "" if form is Form.TEXT else "",
        tree={Form.MESSAGE: message.lines, Form.TREE: tree}.get(form, ()),
        note=message.note if form is Form.MESSAGE or not message.lines else "",
        hex=list(hex_lines(data[:HEX_BYTES])) if form is Form.HEX else (),
    )


def one_line(start: bytes, size: int) -> str:
    """Return the beginning of data as one line, as hex when it is not text. `size` is the size of the whole data."""
    text = text_of(start, is_whole=len(start) == size)
    if text is None:
        return start[:LINE_BYTES].hex(" ") + (" …" if size > LINE_BYTES else "")
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(start) == size else line + "…"


def text_of(data: bytes, *, is_whole: bool) -> str | None:
    """Return the data as text with visible control characters; None when it is not UTF-8.

    When the data is only a beginning, drops a character that is cut at the end.
    """
    try:
        return visible(data.decode().replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        is_cut_character = not is_whole and error.reason == "unexpected end of data"
        return visible(data[: error.start].decode().replace("\r\n", "\n")) if is_cut_character else None


def hex_lines(data: bytes) -> Iterator[HexLine]:
    for offset in range(0, len(data), HEX_WIDTH):
        line = data[offset : offset + HEX_WIDTH]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in line)
        yield HexLine(offset=f"{offset:06x}", bytes=line.hex(" "), text=text)


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
    if not kind:
        return Decoded(note="" if _is_text(data) else f"The type {name} is unknown. {REMEDY}")
    try:
        return _known(kind, name, data)
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
        return Decoded(note=f"The data contains a message of an unknown type. {REMEDY}")
    except NO_JSON:
        return Decoded(note=f"The data is not a valid {name}.")


def _is_text(data: bytes) -> bool:
    try:
        return all(letter.isprintable() or letter in "\t\n\r" for letter in data.decode())
    except UnicodeDecodeError:
        return False
