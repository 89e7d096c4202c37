"""Who changed what: the console's audit for programs."""

from __future__ import annotations

from collections.abc import Mapping

from django.http import StreamingHttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore import endpoints
from taskstore.types.history import AuditPage

from ..offload.pieces import streamed
from ..reading.audit import Wanted, as_answer, cursor_in, file_of, page_of
from ..reading.exporting import MEDIA_TYPES, Format
from .base import View, serves
from .search import choice_in, page_size_in, query_of


class Audit(View):
    @serves(endpoints.AUDIT)
    def get(self, request: Request) -> Response | StreamingHttpResponse:
        asked = query_of(request, endpoints.AUDIT)
        wanted = Wanted.read(asked)
        if wanted.group:
            self.must_reach(wanted.group)
        form = choice_in(asked, "format", endpoints.AUDIT)
        return self.file(wanted, Format(form)) if form else self.page(wanted, asked)

    def page(self, wanted: Wanted, asked: Mapping[str, str]) -> Response:
        limit = page_size_in(asked, endpoints.AUDIT)
        page = page_of(wanted, after=cursor_in(asked), scope=self.scope(), limit=limit)
        entries = tuple(map(as_answer, page.entries))
        return Response(AuditPage(entries=entries, after=str(page.after) if page.after else None))

    def file(self, wanted: Wanted, form: Format) -> StreamingHttpResponse:
        return streamed(self.request._request, file_of(wanted, form, self.scope()), MEDIA_TYPES[form])
