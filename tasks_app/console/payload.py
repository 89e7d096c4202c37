"""A task's data for people: as a line, as text, as a tree of JSON or a message, as hex. Nothing here is HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from . import json_tree, protobuf

READ_BYTES = json_tree.MOST_BYTES  # More is not needed for any form.
TEXT_BYTES = 64 * 1024  # Who wants all of it downloads it.
HEX_BYTES = 16 * 1024
HEX_WIDTH = 16
LINE_BYTES = 32  # Of data that is no text, in a list.


class Form(StrEnum):
    """How data can be looked at."""

    MESSAGE = "message"
    TREE = "tree"
    TEXT = "text"
    HEX = "hex"


# Forms that show a beginning only.
SHOWN_BYTES = {Form.TEXT: TEXT_BYTES, Form.HEX: HEX_BYTES}
# What data is, by the best form that it can be had in.
KINDS = {Form.MESSAGE: "protobuf", Form.TREE: "JSON", Form.TEXT: "text", Form.HEX: "binary"}


class HexLine(NamedTuple):
    """`HEX_WIDTH` bytes of data, or what is left at its end."""

    offset: str
    bytes: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadView:
    """Data in one form, and the forms in which it can be had."""

    form: Form
    forms: Sequence[Form]
    kind: str  # "protobuf", "JSON", "text", "binary" or "empty".
    size: int  # Bytes.
    is_cut: bool
    text: str = ""
    tree: Sequence[json_tree.Line] = ()  # Of a message or of JSON.
    note: str = ""  # What there is to say of the message.
    hex: Sequence[HexLine] = ()


def show(data: bytes, wanted: Form | None = None, *, size: int | None = None, data_type: str = "") -> PayloadView:
    """The data in the wanted form, or in the best one when it can't be had in that.

    Of data of more than `READ_BYTES` the beginning will do; `size` is that of the whole then.
    `data_type` is the type URL of data that is a protobuf message.
    """
    size = len(data) if size is None else size
    message = protobuf.decode(data, size, data_type) if data_type.strip("/") else protobuf.Decoded()
    tree = json_tree.lines_of(data) if size == len(data) else []
    text = text_of(data[:TEXT_BYTES], is_whole=size <= TEXT_BYTES)
    forms = _forms(is_message=bool(message.lines), is_tree=bool(tree), is_text=text is not None)
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
    """The beginning of data in a line for lists, as hex when it is no text. `size` is that of the whole data."""
    text = text_of(start, is_whole=len(start) == size)
    if text is None:
        return start[:LINE_BYTES].hex(" ") + (" …" if size > LINE_BYTES else "")
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(start) == size else line + "…"


def text_of(data: bytes, *, is_whole: bool) -> str | None:
    """The data as text with its control characters visible; None when it is no UTF-8.

    When it is only the beginning of something, a character that is cut at the end is left out.
    """
    try:
        return _visible(data.decode())
    except UnicodeDecodeError as error:
        is_cut_character = not is_whole and error.reason == "unexpected end of data"
        return _visible(data[: error.start].decode()) if is_cut_character else None


def hex_lines(data: bytes) -> Iterator[HexLine]:
    for offset in range(0, len(data), HEX_WIDTH):
        line = data[offset : offset + HEX_WIDTH]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in line)
        yield HexLine(offset=f"{offset:06x}", bytes=line.hex(" "), text=text)


def _forms(*, is_message: bool, is_tree: bool, is_text: bool) -> list[Form]:
    """The forms that there are, the best one first."""
    return [Form.MESSAGE] * is_message + [Form.TREE] * is_tree + [Form.TEXT] * is_text + [Form.HEX]


def _visible(text: str) -> str:
    # Control characters can't be seen, and a browser drops some: their pictures stand for them.
    return re.sub(r"[\x00-\x08\x0b-\x1f]", lambda found: chr(0x2400 + ord(found[0])), text.replace("\r\n", "\n"))
