"""A whole project of commands, out of the store and into it (docs/commands.md)."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import StreamingHttpResponse
from msgspec import Meta, Struct
from rest_framework.request import Request
from rest_framework.response import Response

from ..command_lists.glances import known_project
from ..command_lists.lines import entries_in
from ..command_lists.transfer import Imported, export_project, groups_of, import_project
from ..command_record import CommandStatus
from ..files import MEDIA_TYPES, Format
from ..streaming import streamed
from ..wire.tasks import Asked
from . import bodies
from .commands import PROJECT, CommandsView
from .description import endpoint
from .queries import query_of

LINES = MEDIA_TYPES[Format.NDJSON]
TEXT = {"type": "string", "format": "binary"}


class CommandLine(Asked, frozen=True, kw_only=True):
    """A command, or a list of them, in a line of its own."""

    status: Annotated[str, Meta(extra_json_schema={"enum": [*CommandStatus]})]
    command: Annotated[dict[str, Any] | None, Meta(description="Of a command: its record.")] = None
    list: Annotated[dict[str, Any] | None, Meta(description="Of a list: its name and its commands.")] = None


class ImportedCommandsAnswer(Struct, frozen=True, kw_only=True):
    """What an import has added."""

    commands: Annotated[int, Meta(description="How many, with those in lists.")]
    lists: int
    there_already: Annotated[int, Meta(description="Commands that an import before had added: they stay as they are.")]

    @classmethod
    def of(cls, imported: Imported) -> ImportedCommandsAnswer:
        return cls(commands=imported.commands, lists=imported.lists, there_already=imported.there_already)


class ExportProject(CommandsView):
    """A project as it is at one moment: for each command and each list a line of JSON, as the import takes it."""

    @endpoint("export_commands", answer=TEXT, kinds=[LINES], parameters=[PROJECT])
    def get(self, request: Request, project: str) -> StreamingHttpResponse:
        query_of(request)
        for group in groups_of(known_project(project)):
            self.must_reach(group)
        return streamed(request._request, export_project(project), LINES)


class ImportProject(CommandsView):
    """Add commands and lists as an export has them: all of them in one commit, or none.

    What an import before has added stays as it is by now, so that the same lines can be sent again. Another command
    of the same id is refused. Lists that were running are open.
    """

    @endpoint("import_commands", answer=ImportedCommandsAnswer, body=CommandLine, body_kind=LINES, parameters=[PROJECT])
    def post(self, request: Request, project: str) -> Response:
        entries = entries_in(bodies.body_of(request))
        self.must_change_project(project)
        imported = import_project(project, entries, self.scope(), by=self.by())
        return Response(ImportedCommandsAnswer.of(imported))
