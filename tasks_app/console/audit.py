"""Who changed what: the list of it, one entry, and all of it as a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from taskstore.errors import InvalidInput

from ..access.policy import Action
from ..conf import retention
from ..models import AuditEntry, Task
from ..reading import audit as audited
from ..reading.audit import FIELDS, AuditCursor, Page, Wanted, file_of
from ..reading.files import MEDIA_TYPES, Format, streamed
from . import parameters as reading
from .pages import page
from .snippets import command_to_be_audited

# What the filter asks for: the word for it, and what could stand there.
ASKED = {
    "by": ("Actor", "ann, token:backup"),
    "action": ("Action", "requeue"),
    "group": ("Group", "mail, pay/*"),
    "since": ("From (UTC)", "now-7d"),
    "until": ("Until (UTC)", "2026-01-31"),
    "reason": ("Reason", "part of the reason"),
}
TIMES = ("now-1h", "now-1d", "now-7d", "now-30d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of the filter."""

    name: str
    label: str
    example: str
    value: str
    suggestions: Sequence[str]
    problems: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What is known of an entry beside its columns."""

    ids: Sequence[int]
    skipped: Sequence[tuple[str, int]]  # Why, and how many.
    others: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, entry: AuditEntry) -> Details:
        known: dict[str, Any] = dict(entry.details)
        ids, skipped = known.pop("ids", []), known.pop("skipped", {})
        others = [(name.replace("_", " "), _in_words(value)) for name, value in known.items()]
        return cls(ids=ids, skipped=list(skipped.items()), others=others)


@require_safe
@page(Action.OPERATE)
def audit(request: HttpRequest) -> HttpResponse:
    """The entries that the address asks for, the newest first."""
    if "" in request.GET.dict().values():
        return redirect(_without_empty(request))
    try:
        after = request.GET.get("after")
        found = audited.page_of(Wanted.read(request.GET.dict()), after=AuditCursor.read(after) if after else None)
    except InvalidInput as refused:
        return _page(request, None, refused)
    return _page(request, found)


@require_safe
@page(Action.OPERATE)
def entry(request: HttpRequest, entry_id: int) -> HttpResponse:
    """All that is known of one."""
    found = audited.entry_of(entry_id)
    context = {"entry_id": entry_id, "entry": found, "days": retention.audit_days(), "now_ms": Task.objects.now_ms()}
    if found is None:
        return render(request, "console/no_audit_entry.html", context, status=404)
    return render(request, "console/audit_entry.html", context | {"details": Details.of(found)})


@require_safe
@page(Action.OPERATE)
def export(request: HttpRequest) -> StreamingHttpResponse:
    """The entries that the address asks for, all of them, to be saved."""
    form = reading.format_of(request.GET)
    answer = streamed(request, file_of(Wanted.read(request.GET.dict()), form), MEDIA_TYPES[form])
    answer["Content-Disposition"] = f'attachment; filename="audit.{form}"'
    return answer


def _page(request: HttpRequest, found: Page | None, refused: InvalidInput | None = None) -> HttpResponse:
    problems = refused.fields if refused else {}
    context = {
        "fields": _fields(request, problems),
        "other_problems": [f"{name}: {' '.join(texts)}" for name, texts in problems.items() if name not in ASKED],
        "found": found,
        "is_filtered": any(name in request.GET for name in FIELDS),
        "is_first": "after" not in request.GET,
        "forms": list(Format),
        "days": retention.audit_days(),
        "now_ms": Task.objects.now_ms(),
        "command": command_to_be_audited(),
    }
    return render(request, "console/audit.html", context, status=400 if refused else 200)


def _fields(request: HttpRequest, problems: Any) -> list[Field]:
    actors, actions = audited.recently()
    suggestions = {"by": actors, "action": actions, "since": TIMES, "until": TIMES}
    return [
        Field(
            name=name,
            label=label,
            example=example,
            value=request.GET.get(name, ""),
            suggestions=suggestions.get(name, ()),
            problems=problems.get(name, ()),
        )
        for name, (label, example) in ASKED.items()
    ]


def _without_empty(request: HttpRequest) -> str:
    """The address of the page without what a form sends for fields in which nobody wrote."""
    query = request.GET.copy()
    for name in [name for name, value in request.GET.items() if not value]:
        del query[name]
    return f"{request.path}?{query.urlencode()}" if query else request.path


def _in_words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
