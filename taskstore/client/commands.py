"""`client.commands`: shell commands that workers run in lists (docs/commands.md)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from .. import endpoints
from ..errors import InvalidInput
from ..types.command_record import CommandList, Entry, Line, NotACommand
from ..types.commands import CommandSeen, ImportedCommands, ProjectRequest, Submission, SubmitRequest, SubmittedCommands
from .calls import AnyPart, AsyncPart, Call, Part, calls, decoder, verb, verb_or_none
from .errors import UnexpectedAnswer

MOST_LINES = 1_000  # Per request.
MOST_BYTES = 2**23  # Per request, unless a single line is larger.
Commanded = list[CommandSeen]
NUMBER = re.compile(r"^line (\d+)")


class Incoming:
    """Parse an export of a project while it arrives."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # Chunks of an incomplete line.

    def feed(self, piece: bytes) -> Iterator[Entry]:
        """Yield the commands and lists that are complete. Raises UnexpectedAnswer for any other line."""
        first, *others = piece.split(b"\n")
        self._rest.append(first)
        for other in others:
            yield _entry(b"".join(self._rest))
            self._rest = [other]

    def end(self) -> None:
        """Raises UnexpectedAnswer if the last line is incomplete."""
        if rest := b"".join(self._rest):
            raise UnexpectedAnswer(f"the response ends with an incomplete line: {_beginning(rest)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """The commands and lists of one import request."""

    lines: Sequence[bytes]
    entries: Sequence[Entry]

    @property
    def body(self) -> bytes:
        return b"".join(self.lines)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name commands in errors by status and id instead of by their line in the request."""

        def place(line: re.Match[str]) -> str:
            status, record = self.entries[int(line[1]) - 1]
            return f"{status}/{record.directory if isinstance(record, CommandList) else record.id}"

        try:
            yield
        except InvalidInput as wrong:
            raise type(wrong)({NUMBER.sub(place, path): why for path, why in wrong.fields.items()}) from None


def outgoing(entries: Iterable[Entry]) -> Iterator[Outgoing]:
    """Divide commands and lists into requests."""
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
        raise UnexpectedAnswer(f"the response has an invalid line: {_beginning(line)} ({problem})") from None


def _beginning(line: bytes) -> str:
    return line[:100].decode(errors="replace")


class CommandVerbs(AnyPart):
    """Changes need a token with the scope `commands`."""

    projects = verb(endpoints.COMMAND_PROJECTS)
    status = verb(endpoints.COMMAND_STATUS)
    lists = verb(endpoints.COMMAND_LISTS)
    list = verb_or_none(endpoints.COMMAND_LIST)
    reopen = verb(endpoints.REOPEN_COMMAND_LIST)
    results = verb(endpoints.COMMAND_RESULTS)
    get = verb_or_none(endpoints.COMMAND)
    retry = verb(endpoints.RETRY_COMMANDS)
    stash = verb(endpoints.STASH_COMMANDS)
    unstash = verb(endpoints.UNSTASH_COMMANDS)
    archive = verb(endpoints.ARCHIVE_COMMANDS)

    @calls
    def submit(self, project: str, commands: Iterable[str | Submission], *, stashed: bool = False) -> Call[Commanded]:
        """Submit up to 1 000 command lines, all or none, and return them in the same order.

        `stashed`: hold them back until `unstash`. Raises InvalidInput, which names fields such as `commands[3].cmd`.
        """
        if isinstance(commands, str | bytes):
            raise InvalidInput({"commands": ["must be a list of command lines, not a string"]})
        added = tuple(Submission(cmd=one) if isinstance(one, str) else one for one in commands)
        asked = SubmitRequest(project=project, clientid=self.id, commands=added, stashed=stashed)
        return Call.of(
            endpoints.SUBMIT_COMMANDS, asked, read=lambda content: [*decoder(SubmittedCommands)(content).commands]
        )


class Commands(Part, CommandVerbs):
    """The shell commands of the store."""

    def export_project(self, project: str) -> Iterator[Entry]:
        """Yield all commands and lists of a project at one moment, each with its status, while they arrive.

        Raises StoreUnavailable if the connection breaks.
        """
        incoming = Incoming()
        for piece in self.client.pieces(Call.of(endpoints.EXPORT_COMMANDS, ProjectRequest(project))):
            yield from incoming.feed(piece)
        incoming.end()

    def import_project(self, project: str, entries: Iterable[Entry]) -> ImportedCommands:
        """Import commands and lists in requests of up to 1 000, each applied whole or not at all.

        Running lists become open. Commands that exist already are left unchanged, so an interrupted import can be
        repeated. Raises InvalidInput, which names fields such as `new/5_0: command.cmd`.
        """
        imported = ImportedCommands()
        for some in outgoing(entries):
            with some.named():
                imported += self.send(Call.of(endpoints.IMPORT_COMMANDS, ProjectRequest(project), lines=some.body))
        return imported


class AsyncCommands(AsyncPart, CommandVerbs):
    """The shell commands of the store, for `AsyncClient`."""

    async def export_project(self, project: str) -> AsyncIterator[Entry]:
        """Yield all commands and lists of a project, like `Commands.export_project`."""
        incoming = Incoming()
        async with aclosing(self.client.pieces(Call.of(endpoints.EXPORT_COMMANDS, ProjectRequest(project)))) as pieces:
            async for piece in pieces:
                for entry in incoming.feed(piece):
                    yield entry
        incoming.end()

    async def import_project(self, project: str, entries: Iterable[Entry]) -> ImportedCommands:
        """Import commands and lists, like `Commands.import_project`."""
        imported = ImportedCommands()
        for some in outgoing(entries):
            with some.named():
                imported += await self.send(
                    Call.of(endpoints.IMPORT_COMMANDS, ProjectRequest(project), lines=some.body)
                )
        return imported
