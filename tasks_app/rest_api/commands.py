"""Shell commands over REST: submit, look and change.

Who may see payloads sees what is run and what came of it. To change anything takes the permission `commands`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from rest_framework.exceptions import NotFound

from taskstore import endpoints
from taskstore.types import commands
from taskstore.types.command_record import Command, CommandStatus, group_of
from taskstore.types.requests import Nothing

from .. import commands as verbs
from ..commands import looking, submission_of
from ..commands.paging import seen_as
from ..models import Task
from ..offload.threads import in_a_database_thread
from .base import Who, serves

Found = TypeVar("Found")


def must_reach_project(who: Who, project: str, statuses: Sequence[CommandStatus] = tuple(CommandStatus)) -> None:
    """Raise PermissionDenied when the token may not touch the commands of a project that are in these statuses."""
    who.must_reach(*(group_of(project, status) for status in statuses))


@serves(endpoints.COMMAND_PROJECTS)
def projects(asked: Nothing, who: Who) -> commands.CommandProjects:
    return commands.CommandProjects(projects=tuple(looking.overview(who.scope)))


@serves(endpoints.COMMAND_STATUS)
def status(asked: commands.ProjectRequest, who: Who) -> commands.ProjectStatus:
    return looking.status(asked.project, who.scope)


@serves(endpoints.SUBMIT_COMMANDS)
async def submit(asked: commands.SubmitRequest, who: Who) -> commands.SubmittedCommands:
    must_reach_project(who, asked.project, [asked.status])
    operation = await sync_to_async(submission_of)(asked, who.scope, who.key_of(asked))
    added = await Task.objects.aperform(operation)
    records = await in_a_database_thread(lambda: list(Task.objects.with_data(added)))
    # From the records: when the request was sent again, they are what the first one added.
    made = (seen_as(Command.decode(each.whole_data), each, asked.project, asked.status) for each in records)
    return commands.SubmittedCommands(commands=tuple(made))


@serves(endpoints.COMMAND_LISTS)
def lists(asked: commands.ListsRequest, who: Who) -> commands.ListPage:
    only = CommandStatus(asked.status) if asked.status else None
    return looking.lists(asked.project, status=only, after=asked.after, limit=asked.limit, scope=who.scope)


@serves(endpoints.COMMAND_LIST)
def one_list(asked: commands.ListRequest, who: Who) -> commands.ListWhole:
    return _list(asked, who)


def _list(asked: commands.ListRequest | commands.ReopenRequest, who: Who) -> commands.ListWhole:
    found = looking.command_list(asked.task, who.scope)
    return there(found if found and found.project == asked.project else None, "list", str(asked.task))


@serves(endpoints.REOPEN_COMMAND_LIST)
def reopen(asked: commands.ReopenRequest, who: Who) -> commands.ChangedCommands:
    must_reach_project(who, asked.project, [CommandStatus.OPEN])
    is_done = verbs.reopen(asked.project, _list(asked, who).list.task, who.actor.because(asked.reason))
    return commands.ChangedCommands(changed=int(is_done))


@serves(endpoints.COMMAND_RESULTS)
def results(asked: commands.ResultsRequest, who: Who) -> commands.ResultPage:
    only = CommandStatus(asked.status) if asked.status else None
    return looking.results(
        asked.project, status=only, text=asked.text, after=asked.after, limit=asked.limit, scope=who.scope
    )


@serves(endpoints.COMMAND)
def command(asked: commands.CommandRequest, who: Who) -> commands.CommandWhole:
    return there(looking.command(asked.project, asked.id, who.scope), "command", asked.id)


@serves(endpoints.RETRY_COMMANDS)
def retry(asked: commands.RetryRequest, who: Who) -> commands.ChangedCommands:
    return changed(verbs.retry, asked, who, status=CommandStatus(asked.status) if asked.status else None)


@serves(endpoints.CANCEL_COMMANDS)
def cancel(asked: commands.CancelCommandsRequest, who: Who) -> commands.ChangedCommands:
    must_reach_project(who, asked.project)
    return commands.ChangedCommands(
        changed=verbs.cancel(asked.project, asked.commands, who.actor.because(asked.reason))
    )


@serves(endpoints.STASH_COMMANDS)
def stash(asked: commands.IdsRequest, who: Who) -> commands.ChangedCommands:
    return changed(verbs.stash, asked, who)


@serves(endpoints.UNSTASH_COMMANDS)
def unstash(asked: commands.IdsRequest, who: Who) -> commands.ChangedCommands:
    return changed(verbs.unstash, asked, who)


@serves(endpoints.ARCHIVE_COMMANDS)
def archive(asked: commands.IdsRequest, who: Who) -> commands.ChangedCommands:
    return changed(verbs.archive, asked, who)


def changed(verb: Callable[..., int], asked: commands.IdsRequest, who: Who, **more: Any) -> commands.ChangedCommands:
    must_reach_project(who, asked.project)
    return commands.ChangedCommands(changed=verb(asked.project, asked.ids, who.actor.because(asked.reason), **more))


def there(found: Found | None, kind: str, name: str) -> Found:
    if found is None:
        raise NotFound(f"No {kind} {name}; it may have finished.")
    return found
