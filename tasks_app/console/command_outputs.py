"""What a command has written, for people: text with what is no text told, or hex; where bytes are missing. No HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..command_record import Output
from . import payload
from .payload import HexLine

PART_BYTES = 64 * 1024  # Shown of the beginning, and of the end. Who wants all of it downloads it.
HEX_BYTES = 4 * 1024
CONTINUES = range(0x80, 0xC0)  # Bytes of UTF-8 with which no character begins.


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An output on a page: its beginning and, after what is left out, its end."""

    size: int  # Bytes that the command wrote.
    missing: int  # Bytes of these that the worker did not keep.
    left_out: int  # Bytes between the beginning and the end here, the missing ones among them.
    parts: Sequence[str] = ()  # The beginning, and the end if something is left out.
    odd: bool = False  # Some bytes are no UTF-8.
    hex: Sequence[HexLine] = ()  # The beginning of what is no text.


def show(output: Output) -> Shown | None:
    """The output for a page; None when nothing was written."""
    kept = output.kept
    size = len(kept) + output.missing
    head, tail = _ends_of(kept, output.cut_at if output.missing else None)
    left_out = size - len(head) - len(tail)
    if not size:
        return None
    if b"\0" in head or b"\0" in tail:
        lines = list(payload.hex_lines(head[:HEX_BYTES]))
        return Shown(size=size, missing=output.missing, left_out=size - len(head[:HEX_BYTES]), hex=lines)
    texts = [_text(head, is_cut=bool(left_out)), _text(_from_a_character(tail), is_cut=False)]
    return Shown(
        size=size,
        missing=output.missing,
        left_out=left_out,
        parts=[text for text, _ in texts][: 2 if left_out else 1],
        odd=any(is_odd for _, is_odd in texts),
    )


def _ends_of(kept: bytes, cut_at: int | None) -> tuple[bytes, bytes]:
    """The beginning and the end: around what is missing, or around what is too much for a page."""
    if cut_at is None and len(kept) <= 2 * PART_BYTES:
        return kept, b""
    at = PART_BYTES if cut_at is None else cut_at
    return kept[:at][:PART_BYTES], kept[at:][-PART_BYTES:]


def _from_a_character(tail: bytes) -> bytes:
    """Without the rest of a character that is cut at the beginning."""
    begin = next((place for place, byte in enumerate(tail[:4]) if byte not in CONTINUES), 0)
    return tail[begin:]


def _text(data: bytes, *, is_cut: bool) -> tuple[str, bool]:
    """The text with its control characters visible, and whether some bytes of it are none."""
    text = payload.text_of(data, is_whole=not is_cut)
    if text is not None:
        return text, False
    replaced = data.decode(errors="replace").encode()
    return payload.text_of(replaced, is_whole=True) or "", True
