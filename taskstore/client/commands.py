"""`client.commands`: shell commands that workers run in lists (docs/commands.md)."""

from __future__ import annotations

from collections.abc import Iterable

from .. import endpoints
from ..errors import InvalidInput
from ..types.commands import CommandSeen, Submission, SubmitRequest, SubmittedCommands
from ..types.tasks import Outcome
from .calls import AnyPart, AsyncPart, Call, Part, calls, decoder, verb, verb_or_none
from .verbs import tasks_of

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
    cancel = verb(endpoints.CANCEL_COMMANDS)
    stash = verb(endpoints.STASH_COMMANDS)
    unstash = verb(endpoints.UNSTASH_COMMANDS)
    archive = verb(endpoints.ARCHIVE_COMMANDS)

    @calls
    def submit(
        self,
        project: str,
        commands: Iterable[str | bytes | Submission],
        *,
        stashed: bool = False,
        then: Iterable[str | bytes | Submission] = (),
        hold: bool = False,
        batch: int = 0,
        after: int = 0,
    ) -> Call[Commanded]:
        """Submit up to 1 000 command lines, all or none, and return them in the same order.

        A line that is not UTF-8 is given as bytes, or as a string that Python made of it (`os.fsdecode`).

        `stashed`: hold them back until `unstash`. `then`: command lines to submit once when these have succeeded; these
        are a batch, whose id each has as its `batch`. `hold`: that batch stays open until it is released, so that more
        commands can join it as their `batch`. `after`: the id of a batch; they are submitted once it has closed, or now
        if it has, and none is returned. Raises InvalidInput, which names fields such as `commands[3].cmd`;
        CommitRefused if `batch` is not open, or `after` does not exist.
        """
        asked = SubmitRequest(
            project=project,
            clientid=self.id,
            commands=_lines("commands", commands),
            stashed=stashed,
            then=_lines("then", then),
            hold=hold,
            batch=batch,
            after=after,
        )
        return Call.of(endpoints.SUBMIT_COMMANDS, asked, read=_submitted)


def _submitted(answer: bytes) -> Commanded:
    """Return the new commands. Raises CommitRefused if they can't join their batch."""
    tasks_of(decoder(Outcome)(answer))
    return [*decoder(SubmittedCommands)(answer).commands]


def _lines(field: str, lines: Iterable[str | bytes | Submission]) -> tuple[Submission, ...]:
    if isinstance(lines, str | bytes):
        raise InvalidInput({field: ["must be a list of command lines, not a string"]})
    return tuple(Submission.of(one) if isinstance(one, str | bytes) else one for one in lines)


class Commands(Part, CommandVerbs):
    """The shell commands of the store."""


class AsyncCommands(AsyncPart, CommandVerbs):
    """The shell commands of the store, for `AsyncClient`."""
