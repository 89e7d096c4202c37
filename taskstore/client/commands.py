"""`client.commands`: shell commands that workers run in lists (docs/commands.md)."""

from __future__ import annotations

from collections.abc import Iterable

from .. import endpoints
from ..errors import InvalidInput
from ..types.commands import CommandSeen, Submission, SubmitRequest, SubmittedCommands
from .calls import AnyPart, AsyncPart, Call, Part, calls, decoder, verb, verb_or_none

Commanded = list[CommandSeen]


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


class AsyncCommands(AsyncPart, CommandVerbs):
    """The shell commands of the store, for `AsyncClient`."""
