"""The lines of JSON in which a server exports and imports a project of commands, without loss. No Django.

A line is `{"status": "new", "command": {...}}` or `{"status": "open", "list": {...}}`, with a record of
command_record.py in the inner braces.
"""

from __future__ import annotations

from typing import Any, Self

from msgspec import Struct

from . import records
from .command_record import OF_LISTS, Command, CommandList, CommandStatus, NotACommand

Entry = tuple[CommandStatus, Command | CommandList]


class Line(Struct, frozen=True, kw_only=True):
    """A command or a list, depending on the status."""

    status: CommandStatus
    command: Command | None = None
    list: CommandList | None = None

    @classmethod
    def of(cls, entry: Entry) -> Self:
        status, record = entry
        return (
            cls(status=status, list=record) if isinstance(record, CommandList) else cls(status=status, command=record)
        )

    @classmethod
    def read(cls, tree: Any) -> Self:
        """Parse a line. Raises NotACommand, which names the invalid member."""
        try:
            line = records.value_of(cls, tree)
        except (ValueError, RecursionError) as problem:
            raise NotACommand(str(problem)) from None
        if line.status in OF_LISTS and (line.command or not line.list):
            raise NotACommand(f"an entry with the status {line.status} must have the member list and no other")
        if line.status not in OF_LISTS and (line.list or not line.command):
            raise NotACommand(f"an entry with the status {line.status} must have the member command and no other")
        return line

    @property
    def entry(self) -> Entry:
        if self.list is not None:
            return self.status, self.list
        if self.command is not None:
            return self.status, self.command
        raise NotACommand("an entry must have a command or a list")

    def encode(self) -> bytes:
        """Return the line as JSON with a line break."""
        name = "list" if self.list else "command"
        return b'{"status":"%b","%b":%b}\n' % (self.status.encode(), name.encode(), self.entry[1].encode(packed=False))
