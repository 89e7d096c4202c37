"""Export and import over REST."""

from __future__ import annotations

from django.http import StreamingHttpResponse
from rest_framework.request import Request

from taskstore.errors import InvalidInput
from taskstore.types.tasks import NOBODY, Imported

from ..access.policy import Action
from ..models import Task
from ..offload.threads import by_the_helper
from ..reading import importing
from ..reading.exporting import Export, download
from ..reading.files import MEDIA_TYPES, Format
from ..reading.search import grammar
from ..wire.size import is_light
from ..wire.tasks import Add
from . import bodies, large_bodies
from .async_views import LoopView
from .base import View
from .errors import ENCODER
from .large_bodies import LargeUpdate
from .requests import ImportRequest
from .schema import NAME, endpoint, query
from .search import query_of

TEXT = {"type": "string", "format": "binary"}
KINDS = [kind.partition(";")[0] for kind in MEDIA_TYPES.values()]
EXPORT_QUERY = [
    query("q", {"type": "string", "maxLength": grammar.LONGEST}, "As for `/search`; without it every task."),
    query("format", {"type": "string", "enum": [*Format], "default": Format.NDJSON}),
]


class ExportTasks(View):
    """All tasks that a search finds, as a file: in NDJSON a task a line, which `/import` takes, or CSV.

    It walks on to the end, however long that takes. What is added meanwhile is left out; what is replaced
    meanwhile may come twice, with the same `origin`, or not at all. An answer that breaks off ends without
    the last chunk of HTTP, which clients report as an error.
    """

    needs = Action.SEE_PAYLOADS

    @endpoint("export", answer=TEXT, kinds=KINDS, parameters=EXPORT_QUERY)
    def get(self, request: Request) -> StreamingHttpResponse:
        asked = query_of(request, "q", "format")
        export = Export(
            terms=grammar.parse(asked.get("q", "")),
            format=_format_in(asked.get("format", Format.NDJSON)),
            with_data=True,
            scope=self.scope(),
        )
        return download(request._request, export)


def _format_in(text: str) -> Format:
    try:
        return Format(text)
    except ValueError:
        raise InvalidInput({"format": [f"one of {', '.join(Format)}"]}) from None


IMPORT_QUERY = [query("group", NAME, "Where all of them go, whatever the lines say.")]


class ImportTasks(LoopView):
    """Add the tasks of a file in NDJSON: all of them in one commit, or none.

    A line is an add of `/update`; what only the server sets is ignored, so that what `/export` wrote can be sent
    as it is. `errors` names the first wrong lines and their fields.
    """

    needs = Action.WORK

    @endpoint("import", answer=Imported, body=Add, body_kind=MEDIA_TYPES[Format.NDJSON], parameters=IMPORT_QUERY)
    async def post(self, request: Request) -> bytes:
        group = query_of(request, "group").get("group", "")
        body = bodies.body_of(request)
        asked: ImportRequest | LargeUpdate
        if is_large := not is_light(body):
            has_key = "HTTP_IDEMPOTENCY_KEY" in request._request.META
            asked = LargeUpdate.of(await by_the_helper(large_bodies.tasks_of_file, body, group, has_key))
        else:
            asked = ImportRequest(clientid=NOBODY, adds=importing.read(body, group))
        for name in asked.groups:
            self.must_reach(name)
        operation = importing.within_scope(asked.operation(self.scope(), self.key_of(asked)))
        tasks = await Task.objects.adecide(operation, is_checked=is_large)
        return ENCODER.encode(Imported(imported=len(tasks), ids=tuple(task.id for task in tasks)))
