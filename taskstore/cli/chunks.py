"""A long file in pieces, each of which is one commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MOST_LINES = 1_000
MOST_BYTES = 2**24


def pieces(lines: Iterable[bytes], most_bytes: int = MOST_BYTES) -> Iterator[tuple[int, list[bytes]]]:
    """So many lines at a time, with the number of the first. A piece of nothing but blank ones is left out."""
    piece: list[bytes] = []
    first, size = 1, 0
    for number, line in enumerate(lines, 1):
        if piece and (len(piece) == MOST_LINES or size + len(line) > most_bytes):
            yield from _unless_blank(first, piece)
            first, piece, size = number, [], 0
        piece.append(line)
        size += len(line)
    yield from _unless_blank(first, piece)


def _unless_blank(first: int, piece: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    if any(line.strip() for line in piece):
        yield first, piece
