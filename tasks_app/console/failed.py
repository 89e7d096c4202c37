"""What failed, by signature and time."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ..counts import failed_tasks
from ..failures import failures
from ..policy import Action
from .commands import command_to_fail
from .pages import page
from .replica import from_replica


@require_safe
@page(Action.SEE)
@from_replica
def failed(request: HttpRequest) -> HttpResponse:
    # The number first: what fails meanwhile is news rather than missed.
    context = {"tasks": failed_tasks(), "failures": failures(), "command": command_to_fail(request)}
    return render(request, "console/failed.html", context)
