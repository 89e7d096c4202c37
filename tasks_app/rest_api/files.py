"""Export and import over REST."""

from __future__ import annotations

from django.http import StreamingHttpResponse
from rest_framework.request import Request

from taskstore import endpoints
from taskstore.types.tasks import NOBODY, Imported

from ..core.operations import Duplicate
from ..models import Task
from ..offload.threads import by_the_helper
from ..reading import importing
from ..reading.exporting import Export, Format, download
from ..reading.search import grammar
from ..wire.requests import ImportRequest, import_of
from ..wire.strict_json import is_light
from . import bodies
from .base import LoopView, View, serves
from .bodies import LargeUpdate
from .errors import ENCODER
from .search import choice_in, query_of


class ExportTasks(View):
    @serves(endpoints.EXPORT)
    def get(self, request: Request) -> StreamingHttpResponse:
        asked = query_of(request, endpoints.EXPORT)
        export = Export(
            terms=grammar.parse(asked.get("q", "")),
            format=Format(choice_in(asked, "format", endpoints.EXPORT) or Format.NDJSON),
            with_data=True,
            scope=self.scope(),
        )
        return download(request._request, export)


class ImportTasks(LoopView):
    @serves(endpoints.IMPORT)
    async def post(self, request: Request) -> bytes:
        group = query_of(request, endpoints.IMPORT).get("group", "")
        body = bodies.body_of(request)
        asked: ImportRequest | LargeUpdate
        if is_large := not is_light(body):
            has_key = "HTTP_IDEMPOTENCY_KEY" in request._request.META
            asked = LargeUpdate.of(await by_the_helper(bodies.tasks_of_file, body, group, has_key))
        else:
            asked = ImportRequest(clientid=NOBODY, adds=importing.read(body, group))
        for name in asked.groups:
            self.must_reach(name)
        key = self.key_of(asked)
        if isinstance(asked, LargeUpdate):
            commit = asked.operation(self.scope(), key)
        else:
            commit = import_of(asked, self.scope(), key)
        tasks = await Task.objects.aperform(importing.within_scope(commit), is_checked=is_large)
        ids = tuple(task.id for task in tasks if not isinstance(task, Duplicate))
        return ENCODER.encode(Imported(imported=len(ids), ids=ids, skipped=len(tasks) - len(ids)))
