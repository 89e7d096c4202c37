"""Shell commands over REST: submit, look and change.

Who may see payloads sees what is run and what came of it. To change anything takes the permission `commands`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from rest_framework.exceptions import NotFound

from taskstore import endpoints
from taskstore.types.command_record import Command, CommandStatus, group_of
from taskstore.types.commands import (
    CancelCommandsRequest,
    ChangedCommands,
    CommandProjects,
    CommandRequest,
    CommandWhole,
    IdsRequest,
    ListPage,
    ListRequest,
    ListsRequest,
    ListWhole,
    ProjectRequest,
    ProjectStatus,
    ReopenRequest,
    ResultPage,
    ResultsRequest,
    RetryRequest,
    SubmitRequest,
    SubmittedCommands,
)
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
def projects(asked: Nothing, who: Who) -> CommandProjects:
    return CommandProjects(projects=tuple(looking.overview(who.scope)))


@serves(endpoints.COMMAND_STATUS)
def status(asked: ProjectRequest, who: Who) -> ProjectStatus:
    return looking.status(asked.project, who.scope)


@serves(endpoints.SUBMIT_COMMANDS)
async def submit(asked: SubmitRequest, who: Who) -> SubmittedCommands:
    must_reach_project(who, asked.project, [asked.status])
    operation = await sync_to_async(submission_of)(asked, who.scope, who.key_of(asked))
    added = await Task.objects.aperform(operation)
    records = await in_a_database_thread(lambda: list(Task.objects.with_data(added)))
    # From the records: when the request was sent again, they are what the first one added.
    made = (seen_as(Command.decode(each.whole_data), each, asked.project, asked.status) for each in records)
    return SubmittedCommands(commands=tuple(made))


@serves(endpoints.COMMAND_LISTS)
def lists(asked: ListsRequest, who: Who) -> ListPage:
    only = CommandStatus(asked.status) if asked.status else None
    return looking.lists(asked.project, status=only, after=asked.after, limit=asked.limit, scope=who.scope)


@serves(endpoints.COMMAND_LIST)
def one_list(asked: ListRequest, who: Who) -> ListWhole:
    return _list(asked, who)


def _list(asked: ListRequest | ReopenRequest, who: Who) -> ListWhole:
    found = looking.command_list(asked.task, who.scope)
    return there(found if found and found.project == asked.project else None, "list", str(asked.task))


@serves(endpoints.REOPEN_COMMAND_LIST)
def reopen(asked: ReopenRequest, who: Who) -> ChangedCommands:
    must_reach_project(who, asked.project, [CommandStatus.OPEN])
    is_done = verbs.reopen(asked.project, _list(asked, who).list.task, who.actor.because(asked.reason))
    return ChangedCommands(changed=int(is_done))


@serves(endpoints.COMMAND_RESULTS)
def results(asked: ResultsRequest, who: Who) -> ResultPage:
    only = CommandStatus(asked.status) if asked.status else None
    return looking.results(
        asked.project, status=only, text=asked.text, after=asked.after, limit=asked.limit, scope=who.scope
    )


@serves(endpoints.COMMAND)
def command(asked: CommandRequest, who: Who) -> CommandWhole:
    return there(looking.command(asked.project, asked.id, who.scope), "command", asked.id)


@serves(endpoints.RETRY_COMMANDS)
def retry(asked: RetryRequest, who: Who) -> ChangedCommands:
    return changed(verbs.retry, asked, who, status=CommandStatus(asked.status) if asked.status else None)


@serves(endpoints.CANCEL_COMMANDS)
def cancel(asked: CancelCommandsRequest, who: Who) -> ChangedCommands:
    must_reach_project(who, asked.project)
    return ChangedCommands(changed=verbs.cancel(asked.project, asked.commands, who.actor.because(asked.reason)))


@serves(endpoints.STASH_COMMANDS)
def stash(asked: IdsRequest, who: Who) -> ChangedCommands:
    return changed(verbs.stash, asked, who)


@serves(endpoints.UNSTASH_COMMANDS)
def unstash(asked: IdsRequest, who: Who) -> ChangedCommands:
    return changed(verbs.unstash, asked, who)


@serves(endpoints.ARCHIVE_COMMANDS)
def archive(asked: IdsRequest, who: Who) -> ChangedCommands:
    return changed(verbs.archive, asked, who)


def changed(verb: Callable[..., int], asked: IdsRequest, who: Who, **more: Any) -> ChangedCommands:
    must_reach_project(who, asked.project)
    return ChangedCommands(changed=verb(asked.project, asked.ids, who.actor.because(asked.reason), **more))


def there(found: Found | None, kind: str, name: str) -> Found:
    if found is None:
        raise NotFound(f"No {kind} {name}; it may have finished.")
    return found
