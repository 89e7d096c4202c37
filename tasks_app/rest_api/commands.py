"""Shell commands: how far they are, lists and results; submitting, parking, running again (contract.md section 7).

Times of commands are seconds since the Epoch, and their durations seconds, as in TDF2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.http import HttpResponse
from msgspec import UNSET
from rest_framework.exceptions import NotFound
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from .. import command_lists
from ..command_lists import looking, new_commands
from ..command_lists.glances import known_project
from ..command_lists.looking import CommandSeen, ListWhole
from ..command_record import LONGEST_PROJECT, OF_LISTS, Command, CommandStatus, group_of, new_command_task
from ..listing import PAGE, Place
from ..models import Task
from ..operations import Commit, TaskRecord
from ..policy import Action
from . import bodies
from .base import View
from .commands_answers import (
    ChangedAnswer,
    CommandAnswer,
    ListsAnswer,
    OneCommandAnswer,
    OneListAnswer,
    ProjectAnswer,
    ProjectsAnswer,
    ResultsAnswer,
    StatusAnswer,
    SubmittedAnswer,
)
from .commands_asked import IdsRequest, ReopenRequest, RetryRequest, SubmitRequest
from .description import FAILURES, ID, KEY_REUSED, NOT_THERE, endpoint, path, query
from .on_the_loop import LoopView
from .operations import choice
from .queries import integer, page_size_in, query_of, refuse_broken_path
from .rendering import ENCODER, JSONRenderer

Found = TypeVar("Found")

PROJECT = path("project", {"type": "string", "maxLength": LONGEST_PROJECT}, "A name without /.")
LIST = path("task", ID, "The id of its task, or the first id that it had.")
PAGED = [
    query("after", {"type": "string"}, "Where the page before ended: its `after`, or a `place`."),
    query("limit", {"type": "integer", "minimum": 1, "maximum": looking.MOST, "default": PAGE}, "How many at most."),
]
OF_A_LIST = sorted(OF_LISTS)
OF_ONE = sorted(set(CommandStatus) - OF_LISTS)
ALSO_NOT_THERE = FAILURES | NOT_THERE


class CommandsView(View):
    """Who may see payloads sees what is run and what came of it. To change anything takes the permission `commands`."""

    needs = Action.SEE_PAYLOADS

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method not in SAFE_METHODS:
            self.needs = Action.COMMANDS
        refuse_broken_path(request)
        super().initial(request, *args, **kwargs)

    def must_change_project(self, project: str, statuses: Sequence[CommandStatus] = tuple(CommandStatus)) -> None:
        """Raise when the token may not change the commands of a project that are in these statuses."""
        known_project(project)
        for status in statuses:
            self.must_change(group_of(project, status))


# ---- Projects


class Projects(CommandsView):
    """The projects with commands in groups that the token may touch, in numbers."""

    needs = Action.SEE

    @endpoint("command_projects", answer=ProjectsAnswer)
    def get(self, request: Request) -> Response:
        query_of(request)
        return Response(ProjectsAnswer(projects=tuple(map(ProjectAnswer.of, looking.overview(self.scope())))))


class Project(CommandsView, LoopView):
    """How far the commands of a project are; or new ones for it."""

    needs = Action.SEE

    @endpoint("command_status", answer=StatusAnswer, parameters=[PROJECT])
    async def get(self, request: Request, project: str) -> bytes:
        query_of(request)
        return ENCODER.encode(StatusAnswer.of(await sync_to_async(looking.status)(project, self.scope())))

    @endpoint(
        "submit_commands",
        answer=SubmittedAnswer,
        body=SubmitRequest,
        parameters=[PROJECT],
        failures=FAILURES | KEY_REUSED,
        status=201,
    )
    async def post(self, request: Request, project: str) -> HttpResponse:
        asked = bodies.read(request, SubmitRequest)
        self.must_change_project(project, [asked.status])
        commands = await sync_to_async(new_commands)(project, asked.submissions)
        adds = tuple(new_command_task(project, command, asked.status) for command in commands)
        operation = Commit(key=self.key_of(asked), owner=asked.clientid, adds=adds, scope=self.scope())
        records = await Task.objects.adecide(operation)
        answer = SubmittedAnswer(commands=tuple(_submitted(project, asked.status, record) for record in records))
        return HttpResponse(ENCODER.encode(answer), content_type=JSONRenderer.media_type, status=201)


def _submitted(project: str, status: CommandStatus, record: TaskRecord) -> CommandAnswer:
    # From the record: when the request was sent again, it is what the first one added.
    return CommandAnswer.of(
        CommandSeen(
            task=record.id,
            project=project,
            status=status,
            command=Command.decode(bytes(record.data)),
            at_ms=record.made_at_ms,
            place=Place(available_at_ms=record.available_at_ms, id=record.id),
        )
    )


# ---- Lists


class Lists(CommandsView):
    """Lists of a project: those that are running first, then the newest first."""

    needs = Action.SEE

    @endpoint(
        "command_lists",
        answer=ListsAnswer,
        parameters=[PROJECT, query("status", {"type": "string", "enum": OF_A_LIST}), *PAGED],
    )
    def get(self, request: Request, project: str) -> Response:
        asked = query_of(request, "status", "after", "limit")
        page = looking.lists(project, status=status_in(asked, OF_A_LIST), scope=self.scope(), **page_in(asked))
        return Response(ListsAnswer.of(page))


class ListView(CommandsView):
    def list(self, project: str, task: str) -> ListWhole:
        found = looking.command_list(integer("task", task), self.scope())
        return there(found if found and found.project == project else None, "list", task)


class OneList(ListView):
    """A list with its commands, for as long as it is open, running or closed."""

    @endpoint("command_list", answer=OneListAnswer, parameters=[PROJECT, LIST], failures=ALSO_NOT_THERE)
    def get(self, request: Request, project: str, task: str) -> Response:
        query_of(request)
        return Response(OneListAnswer.of(self.list(project, task)))


class Reopen(ListView):
    """Open a list at once whose worker is known to be dead. A worker that lives after all can't close it any more."""

    @endpoint(
        "reopen_command_list",
        answer=ChangedAnswer,
        body=ReopenRequest,
        parameters=[PROJECT, LIST],
        failures=ALSO_NOT_THERE,
    )
    def post(self, request: Request, project: str, task: str) -> Response:
        asked = bodies.read(request, ReopenRequest)
        self.must_change_project(project, [CommandStatus.OPEN])
        seen = self.list(project, task).seen
        is_done = command_lists.reopen(project, seen.task, by=self.by(), reason=asked.reason)
        return Response(ChangedAnswer(changed=int(is_done)))


# ---- Results


class Results(CommandsView):
    """Commands that are done with, or that are in one status, the newest first; `text` looks into them."""

    @endpoint(
        "command_results",
        answer=ResultsAnswer,
        parameters=[
            PROJECT,
            query("status", {"type": "string", "enum": OF_ONE}),
            query("text", {"type": "string"}, "What has to be in the id, the line, the worker or the outputs."),
            *PAGED,
        ],
    )
    def get(self, request: Request, project: str) -> Response:
        asked = query_of(request, "status", "text", "after", "limit")
        page = looking.results(
            project,
            status=status_in(asked, OF_ONE),
            text=asked.get("text", ""),
            scope=self.scope(),
            **page_in(asked),
        )
        return Response(ResultsAnswer.of(page))


class OneCommand(CommandsView):
    """A command by its id, with or without its number of fails: where it is now, and what its runs were."""

    @endpoint(
        "command",
        answer=OneCommandAnswer,
        parameters=[PROJECT, path("id", {"type": "string"}, "Of the command.")],
        failures=ALSO_NOT_THERE,
    )
    def get(self, request: Request, project: str, id: str) -> Response:
        query_of(request)
        return Response(OneCommandAnswer.of(there(looking.command(project, id, self.scope()), "command", id)))


# ---- Many at once


class ChangeMany(CommandsView):
    """A verb for many commands or lists of a project, some at a time."""

    def changed(self, project: str, verb: Callable[..., int], asked: IdsRequest, **more: Any) -> Response:
        self.must_change_project(project)
        return Response(ChangedAnswer(changed=verb(project, asked.named, by=self.by(), reason=asked.reason, **more)))


class Retry(ChangeMany):
    """Have finished commands run once more, as new ones that have never failed."""

    @endpoint("retry_commands", answer=ChangedAnswer, body=RetryRequest, parameters=[PROJECT])
    def post(self, request: Request, project: str) -> Response:
        asked = bodies.read(request, RetryRequest)
        return self.changed(project, command_lists.retry, asked, status=None if asked.status is UNSET else asked.status)


class Stash(ChangeMany):
    """Park new commands and open lists: nobody runs them until they are unstashed."""

    @endpoint("stash_commands", answer=ChangedAnswer, body=IdsRequest, parameters=[PROJECT])
    def post(self, request: Request, project: str) -> Response:
        return self.changed(project, command_lists.stash, bodies.read(request, IdsRequest))


class Unstash(ChangeMany):
    """Let parked commands and lists go on."""

    @endpoint("unstash_commands", answer=ChangedAnswer, body=IdsRequest, parameters=[PROJECT])
    def post(self, request: Request, project: str) -> Response:
        return self.changed(project, command_lists.unstash, bodies.read(request, IdsRequest))


class Archive(ChangeMany):
    """Put completed commands into the archive."""

    @endpoint("archive_commands", answer=ChangedAnswer, body=IdsRequest, parameters=[PROJECT])
    def post(self, request: Request, project: str) -> Response:
        return self.changed(project, command_lists.archive, bodies.read(request, IdsRequest))


# ---- What is asked for


def status_in(asked: Mapping[str, str], statuses: Sequence[CommandStatus]) -> CommandStatus | None:
    return CommandStatus(choice("status", asked, list(statuses))) if "status" in asked else None


def page_in(asked: Mapping[str, str]) -> dict[str, Any]:
    """Which page, as the verbs are asked for it."""
    after = Place.read(asked["after"], "after") if "after" in asked else None
    return {"after": after, "limit": page_size_in(asked, looking.MOST)}


def there(found: Found | None, kind: str, name: str) -> Found:
    if found is None:
        raise NotFound(f"There is no {kind} {name}, or no longer.")
    return found
