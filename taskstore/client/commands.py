"""`client.commands`: shell commands that workers run in lists (docs/commands.md)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import endpoints
from ..endpoints import Endpoint
from ..errors import InvalidInput
from ..types.command_lines import Entry, Line
from ..types.command_record import CommandList, CommandStatus, NotACommand, why_no_project
from ..types.commands import (
    ChangedCommands,
    CommandProjects,
    CommandSeen,
    CommandWhole,
    IdsRequest,
    ImportedCommands,
    ListPage,
    ListWhole,
    ProjectCounts,
    ProjectStatus,
    ReopenRequest,
    ResultPage,
    RetryRequest,
    Submission,
    SubmitRequest,
    SubmittedCommands,
)
from .calls import AnyPart, AsyncPart, Call, Part, decoder, given, new_key, verb
from .errors import UnexpectedAnswer

if TYPE_CHECKING:
    pass

MOST_LINES = 1_000  # Per request.
MOST_BYTES = 2**23  # Per request, unless a single line is larger.
PAGE = 50
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

    @verb
    def submit(
        self, project: str, commands: Iterable[str | Submission], *, stashed: bool = False
    ) -> Call[list[CommandSeen]]:
        """Submit up to 1 000 command lines, all or none, and return them in the same order.

        `stashed`: hold them back until `unstash`. Raises InvalidInput, which names fields such as `commands[3].cmd`.
        """
        if isinstance(commands, str | bytes):
            raise InvalidInput({"commands": ["must be a list of command lines, not a string"]})
        added = tuple(Submission(cmd=one) if isinstance(one, str) else one for one in commands)
        body = SubmitRequest(clientid=self.id, commands=added, stashed=stashed)
        return Call.of(
            endpoints.SUBMIT_COMMANDS,
            path=_path(project),
            body=body,
            read=lambda content: list(decoder(SubmittedCommands)(content).commands),
            key=new_key(),
        )

    @verb
    def projects(self) -> Call[list[ProjectCounts]]:
        """Return the projects with commands in groups that this token may access, sorted by name."""
        return Call.of(
            endpoints.COMMAND_PROJECTS, read=lambda content: list(decoder(CommandProjects)(content).projects)
        )

    @verb
    def status(self, project: str) -> Call[ProjectStatus]:
        """Return the progress of a project: counts, running lists, forecast, statistics. An empty project is all 0."""
        return Call.of(endpoints.COMMAND_STATUS, path=_path(project))

    @verb
    def lists(
        self,
        project: str,
        *,
        status: CommandStatus | str | None = None,
        after: str | None = None,
        limit: int = PAGE,
    ) -> Call[ListPage]:
        """Return a page of up to `limit` lists (at most 200): running ones first, then newest first."""
        query = given(status=status, after=after, limit=limit)
        return Call.of(endpoints.COMMAND_LISTS, path=_path(project), query=query)

    @verb
    def list(self, project: str, task: int) -> Call[ListWhole | None]:
        """Return a list by the current or first id of its task, or None if it does not exist or has finished."""
        return Call.of(endpoints.COMMAND_LIST, path=_path(project, task=task), may_be_missing=True)

    @verb
    def reopen(self, project: str, task: int, *, reason: str = "") -> Call[bool]:
        """Make a running list available again immediately, when its worker is known to be dead.

        Returns False if the list was not running. Raises CommitUnknown if the connection breaks.
        """
        return Call.of(
            endpoints.REOPEN_COMMAND_LIST,
            path=_path(project, task=task),
            body=ReopenRequest(reason=reason),
            read=lambda content: bool(_changed(content)),
            once=True,
        )

    @verb
    def results(
        self,
        project: str,
        *,
        status: CommandStatus | str | None = None,
        text: str = "",
        after: str | None = None,
        limit: int = PAGE,
    ) -> Call[ResultPage]:
        """Return a page of up to `limit` commands (at most 200) that have ended or have one status, newest first.

        `text`: only commands with this text in the id, the line, the worker or the outputs. Long outputs are cut;
        `get` returns them whole.
        """
        query = given(status=status, text=text or None, after=after, limit=limit)
        return Call.of(endpoints.COMMAND_RESULTS, path=_path(project), query=query)

    @verb
    def get(self, project: str, id: str) -> Call[CommandWhole | None]:
        """Return a command by its id, with or without its number of failures, or None if it does not exist."""
        return Call.of(endpoints.COMMAND, path=_path(project, id=id), may_be_missing=True)

    @verb
    def retry(
        self,
        project: str,
        ids: Iterable[int] | None = None,
        *,
        status: CommandStatus | str | None = None,
        reason: str = "",
    ) -> Call[int]:
        """Run finished commands again, as new ones without failures. Returns how many.

        Select them by the ids of their tasks or by status; by default all that failed too often or were too late.
        Raises CommitUnknown if the connection breaks.
        """
        return _many(
            endpoints.RETRY_COMMANDS, project, RetryRequest(reason=reason, **_ids(ids), **given(status=status))
        )

    @verb
    def stash(self, project: str, ids: Iterable[int] | None = None, *, reason: str = "") -> Call[int]:
        """Hold back new commands and open lists with these task ids; None holds back all. Returns how many."""
        return _many(endpoints.STASH_COMMANDS, project, IdsRequest(reason=reason, **_ids(ids)))

    @verb
    def unstash(self, project: str, ids: Iterable[int] | None = None, *, reason: str = "") -> Call[int]:
        """Release commands and lists with these task ids; None releases all. Returns how many."""
        return _many(endpoints.UNSTASH_COMMANDS, project, IdsRequest(reason=reason, **_ids(ids)))

    @verb
    def archive(self, project: str, ids: Iterable[int] | None = None, *, reason: str = "") -> Call[int]:
        """Archive completed commands with these task ids; None archives all. Returns how many."""
        return _many(endpoints.ARCHIVE_COMMANDS, project, IdsRequest(reason=reason, **_ids(ids)))


def _path(project: str, **more: str | int) -> dict[str, str | int]:
    if why := why_no_project(project):
        raise InvalidInput({"project": [why]})
    return {"project": project, **more}


def _export(project: str) -> Call[bytes]:
    return Call.of(endpoints.EXPORT_COMMANDS, path=_path(project))


def _import(project: str, some: Outgoing) -> Call[ImportedCommands]:
    return Call.of(endpoints.IMPORT_COMMANDS, path=_path(project), body=some.body)


def _ids(ids: Iterable[int] | None) -> dict[str, Any]:
    return {} if ids is None else {"ids": tuple(ids)}


def _many(endpoint: Endpoint[Any], project: str, body: IdsRequest) -> Call[int]:
    # Not idempotent: sent again, it would also change commands that have arrived since.
    return Call.of(endpoint, path=_path(project), body=body, read=_changed, once=True)


def _changed(content: bytes) -> int:
    return decoder(ChangedCommands)(content).changed


class Commands(Part, CommandVerbs):
    """The shell commands of the store."""

    def export_project(self, project: str) -> Iterator[Entry]:
        """Yield all commands and lists of a project at one moment, each with its status, while they arrive.

        Raises StoreUnavailable if the connection breaks.
        """
        incoming = Incoming()
        for piece in self.client.pieces(_export(project)):
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
                imported += self.send(_import(project, some))
        return imported


class AsyncCommands(AsyncPart, CommandVerbs):
    """The shell commands of the store, for `AsyncClient`."""

    async def export_project(self, project: str) -> AsyncIterator[Entry]:
        """Yield all commands and lists of a project, like `Commands.export_project`."""
        incoming = Incoming()
        async with aclosing(self.client.pieces(_export(project))) as pieces:
            async for piece in pieces:
                for entry in incoming.feed(piece):
                    yield entry
        incoming.end()

    async def import_project(self, project: str, entries: Iterable[Entry]) -> ImportedCommands:
        """Import commands and lists, like `Commands.import_project`."""
        imported = ImportedCommands()
        for some in outgoing(entries):
            with some.named():
                imported += await self.send(_import(project, some))
        return imported
