"""Projects of commands on their way between files and a server: line by line, and in requests of some lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..command_lines import Entry, Line
from ..command_record import CommandList, NotACommand
from ..errors import InvalidInput
from .errors import UnexpectedAnswer

MOST_LINES = 1_000  # A request,
MOST_BYTES = 2**23  # unless it is one line.
NUMBER = re.compile(r"^line (\d+)")


class Incoming:
    """Fed with bytes, it gives the commands and lists that are whole. Raises UnexpectedAnswer when there are others."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # Of a line.

    def feed(self, piece: bytes) -> Iterator[Entry]:
        first, *others = piece.split(b"\n")
        self._rest.append(first)
        for other in others:
            yield _entry(b"".join(self._rest))
            self._rest = [other]

    def end(self) -> None:
        """Nothing follows."""
        if rest := b"".join(self._rest):
            raise UnexpectedAnswer(f"this is no whole line: {_beginning(rest)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """What goes into one request."""

    lines: Sequence[bytes]
    entries: Sequence[Entry]

    @property
    def body(self) -> bytes:
        return b"".join(self.lines)

    @contextmanager
    def named(self) -> Iterator[None]:
        """What is wrong is told by what the lines are about: nobody else knows their numbers."""
        try:
            yield
        except InvalidInput as wrong:
            raise type(wrong)({NUMBER.sub(self._place, path): why for path, why in wrong.fields.items()}) from None

    def _place(self, line: re.Match[str]) -> str:
        status, record = self.entries[int(line[1]) - 1]
        return f"{status}/{record.directory if isinstance(record, CommandList) else record.id}"


def outgoing(entries: Iterable[Entry]) -> Iterator[Outgoing]:
    lines: list[bytes] = []
    some: list[Entry] = []
    size = 0
    for entry in entries:
        line = Line.of(entry).encode()
        if lines and (len(lines) == MOST_LINES or size + len(line) > MOST_BYTES):
            yield Outgoing(lines=lines, entries=some)
            lines, some, size = [], [], 0
        lines.append(line)
        some.append(entry)
        size += len(line)
    if lines:
        yield Outgoing(lines=lines, entries=some)


def _entry(line: bytes) -> Entry:
    try:
        return Line.read(json.loads(line)).entry
    except (ValueError, NotACommand, RecursionError) as problem:
        raise UnexpectedAnswer(f"this is no command, nor a list of them: {_beginning(line)} ({problem})") from None


def _beginning(line: bytes) -> str:
    return line[:100].decode(errors="replace")
