"""Any list of tasks as a file."""

from __future__ import annotations

from django.http import StreamingHttpResponse
from rest_framework.request import Request

from ..errors import InvalidInput
from ..exporting import Export, download
from ..files import MEDIA_TYPES, Format
from ..policy import Action
from ..search import grammar
from .base import View
from .description import endpoint, query
from .queries import query_of

TEXT = {"type": "string", "format": "binary"}
KINDS = [kind.partition(";")[0] for kind in MEDIA_TYPES.values()]
ASKED = [
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

    @endpoint("export", answer=TEXT, kinds=KINDS, parameters=ASKED)
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
