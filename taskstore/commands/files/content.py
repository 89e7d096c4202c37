"""What directories of TDF2 hold, as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...types.command_lines import Entry
from ...types.command_record import Command, CommandList, CommandStatus


class NotFiles(ValueError):
    """Directories that are not TDF2's, or commands that can't be such. Nothing was read or written.

    `problems` has them all, each with the file that it is about.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectContent:
    """All commands of a project: those in lists, and the others."""

    commands: Sequence[tuple[CommandStatus, Command]] = ()
    lists: Sequence[tuple[CommandStatus, CommandList]] = ()

    @property
    def entries(self) -> Iterator[Entry]:
        yield from self.commands
        yield from self.lists
