"""Shell commands through the client."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import structs

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
    ImportedCommands,
    ListPage,
    ListWhole,
    ProjectCounts,
    ProjectStatus,
    ResultPage,
    Submission,
    SubmittedCommands,
)
from .calls import Call, decoder, given, new_key
from .errors import UnexpectedAnswer
from .verbs import AsyncSender, Sender

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
            raise UnexpectedAnswer(f"the answer ends with an incomplete line: {_beginning(rest)}")


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
        raise UnexpectedAnswer(f"the answer has an invalid line: {_beginning(line)} ({problem})") from None


def _beginning(line: bytes) -> str:
    return line[:100].decode(errors="replace")


P = ParamSpec("P")
T = TypeVar("T")

PAGE = 50


@dataclass(frozen=True, slots=True)
class CommandCalls:
    """`id`: in whose name they are. To change anything takes a token of the scope `commands`."""

    id: int

    def submit(
        self, project: str, commands: Iterable[str | Submission], *, stashed: bool = False
    ) -> Call[list[CommandSeen]]:
        """Add at most 1 000 command lines, all or none, in this order. `stashed`: no list is made of them yet.

        Raises InvalidInput that names what is wrong, as in `commands[3].cmd`.
        """
        if isinstance(commands, str | bytes):
            raise InvalidInput({"commands": ["must be a list of command lines, not a string"]})
        added = [given(**structs.asdict(Submission(cmd=one) if isinstance(one, str) else one)) for one in commands]
        body = {"clientid": self.id, "commands": added, "stashed": stashed}
        return Call.of(
            endpoints.SUBMIT_COMMANDS,
            path=_path(project),
            body=body,
            read=lambda content: list(decoder(SubmittedCommands)(content).commands),
            key=new_key(),
        )

    def projects(self) -> Call[list[ProjectCounts]]:
        """The projects with commands in groups that the token may touch, sorted by name."""
        return Call.of(
            endpoints.COMMAND_PROJECTS, read=lambda content: list(decoder(CommandProjects)(content).projects)
        )

    def status(self, project: str) -> Call[ProjectStatus]:
        """How far a project is: numbers, running lists, forecast, statistics. All 0 when there is nothing in it."""
        return Call.of(endpoints.COMMAND_STATUS, path=_path(project))

    def lists(
        self,
        project: str,
        *,
        status: CommandStatus | str | None = None,
        after: str | None = None,
        limit: int = PAGE,
    ) -> Call[ListPage]:
        """At most `limit` (200) lists: those that are running first, then the newest first."""
        query = given(status=status, after=after, limit=limit)
        return Call.of(endpoints.COMMAND_LISTS, path=_path(project), query=query)

    def list(self, project: str, task: int) -> Call[ListWhole | None]:
        """A list by the id of its task, or the first one that it had; None when there is none, or no longer."""
        return Call.of(endpoints.COMMAND_LIST, path=_path(project, task=task), may_be_missing=True)

    def reopen(self, project: str, task: int, *, reason: str = "") -> Call[bool]:
        """Open a list at once whose worker is known to be dead. False: it was not running."""
        return Call.of(
            endpoints.REOPEN_COMMAND_LIST,
            path=_path(project, task=task),
            body={"reason": reason},
            read=lambda content: bool(_changed(content)),
            once=True,
        )

    def results(
        self,
        project: str,
        *,
        status: CommandStatus | str | None = None,
        text: str = "",
        after: str | None = None,
        limit: int = PAGE,
    ) -> Call[ResultPage]:
        """At most `limit` (200) commands that are done with, or in one status, the newest first.

        `text`: what has to be in the id, the line, the worker or the outputs. Long outputs are cut: `get` has them.
        """
        query = given(status=status, text=text or None, after=after, limit=limit)
        return Call.of(endpoints.COMMAND_RESULTS, path=_path(project), query=query)

    def get(self, project: str, id: str) -> Call[CommandWhole | None]:
        """A command by its id, with or without its number of fails; None when there is none."""
        return Call.of(endpoints.COMMAND, path=_path(project, id=id), may_be_missing=True)

    def retry(
        self,
        project: str,
        ids: Iterable[int] | None = None,
        *,
        status: CommandStatus | str | None = None,
        reason: str = "",
    ) -> Call[int]:
        """Have finished commands run once more, as new ones that never failed. Returns how many.

        Which: by the ids of their tasks, or all in a status; without both all that failed too often or too late.
        """
        return _many(endpoints.RETRY_COMMANDS, project, ids, reason, status=status)

    def stash(self, project: str, ids: Iterable[int] | None = None, *, reason: str = "") -> Call[int]:
        """Park new commands and open lists, by the ids of their tasks; None: all. Returns how many."""
        return _many(endpoints.STASH_COMMANDS, project, ids, reason)

    def unstash(self, project: str, ids: Iterable[int] | None = None, *, reason: str = "") -> Call[int]:
        """Let parked commands and lists go on. Returns how many."""
        return _many(endpoints.UNSTASH_COMMANDS, project, ids, reason)

    def archive(self, project: str, ids: Iterable[int] | None = None, *, reason: str = "") -> Call[int]:
        """Put completed commands into the archive. Returns how many."""
        return _many(endpoints.ARCHIVE_COMMANDS, project, ids, reason)

    def export_project(self, project: str) -> Call[bytes]:
        """All of a project as lines of JSON."""
        return Call.of(endpoints.EXPORT_COMMANDS, path=_path(project))

    def import_some(self, project: str, some: Outgoing) -> Call[ImportedCommands]:
        """All of it, or none. Sent again, it adds nothing."""
        return Call.of(endpoints.IMPORT_COMMANDS, path=_path(project), body=some.body)


def _path(project: str, **more: str | int) -> dict[str, str | int]:
    if why := why_no_project(project):
        raise InvalidInput({"project": [why]})
    return {"project": project, **more}


def _many(endpoint: Endpoint[Any], project: str, ids: Iterable[int] | None, reason: str, **more: Any) -> Call[int]:
    body = {"reason": reason, **given(ids=None if ids is None else [*ids], **more)}
    # What is done is not done again: sent twice, it changes what is left.
    return Call.of(endpoint, path=_path(project), body=body, read=_changed, once=True)


def _changed(content: bytes) -> int:
    return decoder(ChangedCommands)(content).changed


def _verb(describe: Callable[Concatenate[CommandCalls, P], Call[T]]) -> Callable[Concatenate[Commands, P], T]:
    @wraps(describe)
    def send(commands: Commands, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return commands.client.send(describe(CommandCalls(commands.client.id), *args, **kwargs))

    return send


def _async_verb(
    describe: Callable[Concatenate[CommandCalls, P], Call[T]],
) -> Callable[Concatenate[AsyncCommands, P], Awaitable[T]]:
    @wraps(describe)
    async def send(commands: AsyncCommands, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await commands.client.send(describe(CommandCalls(commands.client.id), *args, **kwargs))

    return send


@dataclass(frozen=True, slots=True)
class Commands:
    """The shell commands of a client's store."""

    client: Sender

    submit = _verb(CommandCalls.submit)
    projects = _verb(CommandCalls.projects)
    status = _verb(CommandCalls.status)
    lists = _verb(CommandCalls.lists)
    list = _verb(CommandCalls.list)
    reopen = _verb(CommandCalls.reopen)
    results = _verb(CommandCalls.results)
    get = _verb(CommandCalls.get)
    retry = _verb(CommandCalls.retry)
    stash = _verb(CommandCalls.stash)
    unstash = _verb(CommandCalls.unstash)
    archive = _verb(CommandCalls.archive)

    def export_project(self, project: str) -> Iterator[Entry]:
        """All commands and lists of a project at one moment, each with its status, one by one while they come in.

        Raises StoreUnavailable when it breaks off.
        """
        incoming = Incoming()
        for piece in self.client.pieces(CommandCalls(self.client.id).export_project(project)):
            yield from incoming.feed(piece)
        incoming.end()

    def import_project(self, project: str, entries: Iterable[Entry]) -> ImportedCommands:
        """Add commands and lists, 1 000 at a time, each time all of them or none. Lists that were running are open.

        What is there already stays as it is by now, so that an import that broke off can be done again. Raises
        InvalidInput that names what is wrong, as in `new/5_0: command.cmd`.
        """
        imported = ImportedCommands()
        for some in outgoing(entries):
            with some.named():
                imported += self.client.send(CommandCalls(self.client.id).import_some(project, some))
        return imported


@dataclass(frozen=True, slots=True)
class AsyncCommands:
    """The same for a client that is awaited."""

    client: AsyncSender

    submit = _async_verb(CommandCalls.submit)
    projects = _async_verb(CommandCalls.projects)
    status = _async_verb(CommandCalls.status)
    lists = _async_verb(CommandCalls.lists)
    list = _async_verb(CommandCalls.list)
    reopen = _async_verb(CommandCalls.reopen)
    results = _async_verb(CommandCalls.results)
    get = _async_verb(CommandCalls.get)
    retry = _async_verb(CommandCalls.retry)
    stash = _async_verb(CommandCalls.stash)
    unstash = _async_verb(CommandCalls.unstash)
    archive = _async_verb(CommandCalls.archive)

    async def export_project(self, project: str) -> AsyncIterator[Entry]:
        """As that of Commands."""
        incoming = Incoming()
        async with aclosing(self.client.pieces(CommandCalls(self.client.id).export_project(project))) as pieces:
            async for piece in pieces:
                for entry in incoming.feed(piece):
                    yield entry
        incoming.end()

    async def import_project(self, project: str, entries: Iterable[Entry]) -> ImportedCommands:
        """As that of Commands."""
        imported = ImportedCommands()
        for some in outgoing(entries):
            with some.named():
                imported += await self.client.send(CommandCalls(self.client.id).import_some(project, some))
        return imported
