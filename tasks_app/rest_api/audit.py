"""Who changed what: the console's audit for programs."""

from __future__ import annotations

from collections.abc import Mapping

from django.http import StreamingHttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore.errors import InvalidInput
from taskstore.types.audit import AuditPage

from ..access.policy import Action
from ..core.validation import GROUP_LENGTH
from ..reading.audit import FIELDS, LONGEST, PAGE, AuditCursor, Wanted, as_answer, file_of, page_of
from ..reading.files import MEDIA_TYPES, Format, streamed
from .base import View
from .schema import endpoint, query
from .search import integer, query_of

MOST = 1_000

TEXT = {"type": "string", "maxLength": LONGEST}
TIME = "now-1h or 2026-01-31T12:00 (UTC)."

ASKED = [
    query("by", TEXT, "A user's name, or `token:` and the name of a token."),
    query("action", TEXT, "requeue, move, purge, edit, pause, create token, ..."),
    query("group", {"type": "string", "maxLength": GROUP_LENGTH + 1}, "A name, or its beginning and *."),
    query("since", {"type": "string"}, f"At or after {TIME}"),
    query("until", {"type": "string"}, f"Before {TIME}"),
    query("reason", TEXT, "A part of the reason, in capitals or not."),
    query("after", {"type": "string"}, "Where the page before ended; not for a file."),
    query("limit", {"type": "integer", "minimum": 1, "maximum": MOST, "default": PAGE}, "At most; not for a file."),
    query("format", {"type": "string", "enum": list(Format)}, "All of it as a file, in place of a page as JSON."),
]


class Audit(View):
    """What people and operating tokens changed, the newest first.

    A token for some groups only is told what was done to these, and nothing of what concerns several groups or none.
    """

    needs = Action.OPERATE

    @endpoint("audit", answer=AuditPage, parameters=ASKED, files=MEDIA_TYPES.values())
    def get(self, request: Request) -> Response | StreamingHttpResponse:
        asked = query_of(request, *FIELDS, "after", "limit", "format")
        wanted = Wanted.read(asked)
        if wanted.group:
            self.must_reach(wanted.group)
        return self.file(wanted, asked["format"]) if "format" in asked else self.page(wanted, asked)

    def page(self, wanted: Wanted, asked: Mapping[str, str]) -> Response:
        after = AuditCursor.read(asked["after"]) if "after" in asked else None
        limit = _limit_in(asked.get("limit", str(PAGE)))
        page = page_of(wanted, after=after, scope=self.scope(), limit=limit)
        entries = tuple(map(as_answer, page.entries))
        return Response(AuditPage(entries=entries, after=str(page.after) if page.after else None))

    def file(self, wanted: Wanted, form: str) -> StreamingHttpResponse:
        if form not in {*Format}:
            raise InvalidInput({"format": [f"one of {', '.join(Format)}"]})
        pieces = file_of(wanted, Format(form), self.scope())
        return streamed(self.request._request, pieces, MEDIA_TYPES[Format(form)])


def _limit_in(text: str) -> int:
    limit = integer("limit", text)
    if not 1 <= limit <= MOST:
        raise InvalidInput({"limit": [f"a whole number from 1 to {MOST}"]})
    return limit
