"""The pages of the audit log: its list, one entry, and the export."""

from __future__ import annotations

import json

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render

from taskstore.errors import InvalidInput, refuse
from taskstore.types import sentences

from ..access.policy import Action
from ..conf import retention
from ..models import Task
from ..offload.pieces import streamed
from ..reading import audit as audited
from ..reading.audit import FIELDS, Page, Wanted, cursor, file_of
from ..reading.exporting import MEDIA_TYPES, Format
from . import parameters
from .pages import reads, without_empty_fields

# The filter's fields, each with its label and an example.
ASKED = {
    "by": ("Actor", "ann, token:backup"),
    "action": ("Action", "requeue"),
    "group": ("Group", "mail, pay/*"),
    "since": ("From (UTC)", "now-7d"),
    "until": ("Until (UTC)", "2026-01-31"),
    "reason": ("Reason", "part of the reason"),
}
TIMES = ("now-1h", "now-1d", "now-7d", "now-30d")


@reads(Action.OPERATE)
def audit(request: HttpRequest) -> HttpResponse:
    """List the entries that match the query, newest first."""
    if "" in request.GET.dict().values():
        return redirect(without_empty_fields(request))
    try:
        found = audited.page_of(_wanted(request, "after"), after=cursor(request.GET.get("after")))
    except InvalidInput as refused:
        return _page(request, None, refused)
    return _page(request, found)


@reads(Action.OPERATE)
def entry(request: HttpRequest, entry_id: int) -> HttpResponse:
    """Show one entry with all its details."""
    found = audited.entry_of(entry_id)
    context = {"entry_id": entry_id, "entry": found, "days": retention.audit_days(), "now_ms": Task.objects.now_ms()}
    if found is None:
        return render(request, "tasks_app/no_audit_entry.html", context, status=404)
    # The details that have no place of their own.
    others = [
        (name.replace("_", " "), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in found.details.items()
        if name not in ("ids", "skipped")
    ]
    return render(request, "tasks_app/audit_entry.html", context | {"others": others})


@reads(Action.OPERATE)
def export(request: HttpRequest) -> StreamingHttpResponse:
    """Download all entries that match the query."""
    form = parameters.format_of(request.GET)
    answer = streamed(request, file_of(_wanted(request, "format"), form), MEDIA_TYPES[form])
    answer["Content-Disposition"] = f'attachment; filename="audit.{form}"'
    return answer


def _wanted(request: HttpRequest, *others: str) -> Wanted:
    """Parse the filter. A misspelt parameter is refused, because without it the page would show every entry."""
    known = (*FIELDS, *others)
    refuse((name, sentences.unknown("parameter", known)) for name in request.GET if name not in known)
    return Wanted.read(request.GET.dict())


def _page(request: HttpRequest, found: Page | None, refused: InvalidInput | None = None) -> HttpResponse:
    problems = refused.fields if refused else {}
    actors, actions = audited.recently()
    suggestions = {"by": actors, "action": actions, "since": TIMES, "until": TIMES}
    context = {
        "fields": [
            {
                "name": name,
                "label": label,
                "example": example,
                "value": request.GET.get(name, ""),
                "suggestions": suggestions.get(name, ()),
                "problems": problems.get(name, ()),
            }
            for name, (label, example) in ASKED.items()
        ],
        "other_problems": [f"{name}: {' '.join(texts)}" for name, texts in problems.items() if name not in ASKED],
        "found": found,
        "is_filtered": any(name in request.GET for name in FIELDS),
        "is_first": "after" not in request.GET,
        "forms": list(Format),
        "days": retention.audit_days(),
        "now_ms": Task.objects.now_ms(),
    }
    return render(request, "tasks_app/audit.html", context, status=400 if refused else 200)
