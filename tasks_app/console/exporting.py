"""A list of tasks as a file."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.http import require_safe

from ..exporting import Export, download
from ..policy import Action, may
from . import reading
from .pages import page, user_of
from .reading import terms_of


@require_safe
@page(Action.SEE)
def export(request: HttpRequest) -> HttpResponseBase:
    """All that a search finds, or that a group's tab has; without data for those who may not see it."""
    user = user_of(request)
    export = Export(
        terms=terms_of(request.GET.get("q", ""), user),
        format=reading.format_of(request.GET),
        with_data=may(user, Action.SEE_PAYLOADS),
    )
    return download(request, export)
