"""Shell commands over REST: submit, look, change, import and export."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.http import HttpResponse, StreamingHttpResponse
from msgspec import UNSET
from rest_framework.exceptions import NotFound, PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore import endpoints
from taskstore.endpoints import Endpoint
from taskstore.types.command_record import Command, CommandStatus, group_of, new_command_task
from taskstore.types.commands import (
    ChangedCommands,
    CommandProjects,
    IdsRequest,
    ListWhole,
    ReopenRequest,
    RetryRequest,
    SubmitRequest,
    SubmittedCommands,
)

from .. import commands as command_lists
from ..access.policy import COMMANDS_ARE_OFF, Action, commands_are_on
from ..commands import looking, new_commands
from ..commands.import_export import entries_in, export_project, groups_of, import_project
from ..commands.paging import seen_as
from ..commands.summaries import known_project
from ..core.operations import Commit
from ..models import Task
from ..offload.pieces import streamed
from ..offload.threads import in_a_database_thread
from ..reading.exporting import MEDIA_TYPES, Format
from . import bodies
from .base import LoopView, View, serves
from .errors import ENCODER, JSONRenderer
from .search import choice_in, integer, page_size_in, query_of, refuse_broken_path

Found = TypeVar("Found")


class CommandsView(View):
    """Who may see payloads sees what is run and what came of it. To change anything takes the permission `commands`."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        refuse_broken_path(request)
        super().initial(request, *args, **kwargs)

    def check_permissions(self, request: Request) -> None:
        try:
            super().check_permissions(request)
        except PermissionDenied:
            # Another token would not do, either: so that nobody makes one in vain.
            if self.endpoint and self.endpoint.needs is Action.COMMANDS and not commands_are_on():
                raise PermissionDenied(f"Commands can't be submitted or changed, because {COMMANDS_ARE_OFF}.") from None
            raise

    def must_reach_project(self, project: str, statuses: Sequence[CommandStatus] = tuple(CommandStatus)) -> None:
        """Raise when the token may not touch the commands of a project that are in these statuses."""
        known_project(project)
        for status in statuses:
            self.must_reach(group_of(project, status))


# ---- Projects


class Projects(CommandsView):
    @serves(endpoints.COMMAND_PROJECTS)
    def get(self, request: Request) -> Response:
        query_of(request, endpoints.COMMAND_PROJECTS)
        return Response(CommandProjects(projects=tuple(looking.overview(self.scope()))))


class Project(CommandsView, LoopView):
    @serves(endpoints.COMMAND_STATUS)
    async def get(self, request: Request, project: str) -> bytes:
        query_of(request, endpoints.COMMAND_STATUS)
        return ENCODER.encode(await sync_to_async(looking.status)(project, self.scope()))

    @serves(endpoints.SUBMIT_COMMANDS)
    async def post(self, request: Request, project: str) -> HttpResponse:
        asked = bodies.read(request, SubmitRequest)
        self.must_reach_project(project, [asked.status])
        commands = await sync_to_async(new_commands)(project, asked.commands)
        adds = tuple(new_command_task(project, command, asked.status) for command in commands)
        operation = Commit(key=self.key_of(asked), owner=asked.clientid, adds=adds, scope=self.scope())
        added = await Task.objects.aperform(operation)
        records = await in_a_database_thread(lambda: list(Task.objects.with_data(added)))
        # From the records: when the request was sent again, they are what the first one added.
        made = (seen_as(Command.decode(each.whole_data), each, project, asked.status) for each in records)
        answer = ENCODER.encode(SubmittedCommands(commands=tuple(made)))
        return HttpResponse(answer, content_type=JSONRenderer.media_type, status=201)


# ---- Lists


class Lists(CommandsView):
    @serves(endpoints.COMMAND_LISTS)
    def get(self, request: Request, project: str) -> Response:
        asked = query_of(request, endpoints.COMMAND_LISTS)
        return Response(looking.lists(project, scope=self.scope(), **page_in(asked, endpoints.COMMAND_LISTS)))


class ListView(CommandsView):
    def list(self, project: str, task: str) -> ListWhole:
        found = looking.command_list(integer("task", task), self.scope())
        return there(found if found and found.project == project else None, "list", task)


class OneList(ListView):
    @serves(endpoints.COMMAND_LIST)
    def get(self, request: Request, project: str, task: str) -> Response:
        query_of(request, endpoints.COMMAND_LIST)
        return Response(self.list(project, task))


class Reopen(ListView):
    @serves(endpoints.REOPEN_COMMAND_LIST)
    def post(self, request: Request, project: str, task: str) -> Response:
        asked = bodies.read(request, ReopenRequest)
        self.must_reach_project(project, [CommandStatus.OPEN])
        seen = self.list(project, task).list
        is_done = command_lists.reopen(project, seen.task, self.actor.because(asked.reason))
        return Response(ChangedCommands(changed=int(is_done)))


# ---- Results


class Results(CommandsView):
    @serves(endpoints.COMMAND_RESULTS)
    def get(self, request: Request, project: str) -> Response:
        asked = query_of(request, endpoints.COMMAND_RESULTS)
        page = looking.results(
            project,
            text=asked.get("text", ""),
            scope=self.scope(),
            **page_in(asked, endpoints.COMMAND_RESULTS),
        )
        return Response(page)


class OneCommand(CommandsView):
    @serves(endpoints.COMMAND)
    def get(self, request: Request, project: str, id: str) -> Response:
        query_of(request, endpoints.COMMAND)
        return Response(there(looking.command(project, id, self.scope()), "command", id))


# ---- Many at once


class ChangeMany(CommandsView):
    """A verb for many commands or lists of a project, some at a time."""

    def changed(self, project: str, verb: Callable[..., int], asked: IdsRequest, **more: Any) -> Response:
        self.must_reach_project(project)
        return Response(ChangedCommands(changed=verb(project, asked.named, self.actor.because(asked.reason), **more)))


class Retry(ChangeMany):
    @serves(endpoints.RETRY_COMMANDS)
    def post(self, request: Request, project: str) -> Response:
        asked = bodies.read(request, RetryRequest)
        return self.changed(project, command_lists.retry, asked, status=None if asked.status is UNSET else asked.status)


class Stash(ChangeMany):
    @serves(endpoints.STASH_COMMANDS)
    def post(self, request: Request, project: str) -> Response:
        return self.changed(project, command_lists.stash, bodies.read(request, IdsRequest))


class Unstash(ChangeMany):
    @serves(endpoints.UNSTASH_COMMANDS)
    def post(self, request: Request, project: str) -> Response:
        return self.changed(project, command_lists.unstash, bodies.read(request, IdsRequest))


class Archive(ChangeMany):
    @serves(endpoints.ARCHIVE_COMMANDS)
    def post(self, request: Request, project: str) -> Response:
        return self.changed(project, command_lists.archive, bodies.read(request, IdsRequest))


# ---- What is asked for


def page_in(asked: Mapping[str, str], endpoint: Endpoint[Any]) -> dict[str, Any]:
    """Which page, and of what status, as the verbs are asked for it."""
    status = choice_in(asked, "status", endpoint)
    limit = page_size_in(asked, endpoint)
    return {"status": CommandStatus(status) if status else None, "after": asked.get("after"), "limit": limit}


def there(found: Found | None, kind: str, name: str) -> Found:
    if found is None:
        raise NotFound(f"No {kind} {name}; it may have finished.")
    return found


LINES = MEDIA_TYPES[Format.NDJSON]


class ExportProject(CommandsView):
    @serves(endpoints.EXPORT_COMMANDS)
    def get(self, request: Request, project: str) -> StreamingHttpResponse:
        query_of(request, endpoints.EXPORT_COMMANDS)
        for group in groups_of(known_project(project)):
            self.must_reach(group)
        return streamed(request._request, export_project(project), LINES)


class ImportProject(CommandsView):
    @serves(endpoints.IMPORT_COMMANDS)
    def post(self, request: Request, project: str) -> Response:
        entries = entries_in(bodies.body_of(request))
        self.must_reach_project(project)
        return Response(import_project(project, entries, self.actor))
