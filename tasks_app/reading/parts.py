"""Tasks as text, long data in parts: to encode ten megabytes at once would keep the interpreter from everybody else."""

from __future__ import annotations

import base64
from codecs import getincrementaldecoder
from collections.abc import Generator, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from taskstore.types.tasks import Task, as_text

PIECE_BYTES = 2**18
LONG_BYTES = 2**18  # Data that is not written in one step.
ENCODER = msgspec.json.Encoder()


def joined(parts: Iterable[bytes]) -> Generator[bytes]:
    """The parts in pieces of about PIECE_BYTES."""
    piece: list[bytes] = []
    size = 0
    for part in parts:
        piece.append(part)
        size += len(part)
        if size > PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)


def as_json(task: Task, data: bytes) -> Iterator[bytes]:
    """The task, which comes without its data, as JSON."""
    if len(data) < LONG_BYTES:
        text, in_base64 = as_text(data)
        yield ENCODER.encode(replace(task, data_text=text, data_base64=in_base64))
        return
    encoded = ENCODER.encode(task)
    after_id = encoded.index(b",") + 1
    yield encoded[:after_id]
    if is_text(data):
        yield b'"data":"'
        for text in text_parts(data):
            yield ENCODER.encode(text)[1:-1]
    else:
        yield b'"data":null,"data_base64":"'
        yield from base64_parts(data)
    yield b'",' + encoded[after_id:]


def is_text(data: bytes) -> bool:
    decode = getincrementaldecoder("utf-8")().decode
    try:
        for start in range(0, len(data), LONG_BYTES):  # In one step it would take as much memory again.
            decode(data[start : start + LONG_BYTES], start + LONG_BYTES >= len(data))
    except UnicodeDecodeError:
        return False
    return True


def text_parts(data: bytes) -> Iterator[str]:
    start = 0
    while start < len(data):
        end = start + LONG_BYTES
        while end < len(data) and data[end] & 0xC0 == 0x80:  # Amid a character.
            end -= 1
        yield data[start:end].decode()
        start = end


def base64_parts(data: bytes) -> Iterator[bytes]:
    step = LONG_BYTES // 3 * 3
    return (base64.b64encode(data[start : start + step]) for start in range(0, len(data), step))
