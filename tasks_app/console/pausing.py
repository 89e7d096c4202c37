"""Stopping the claims in a group for a while, and letting them go on."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_POST

from .. import pauses
from ..counts import counts_of
from ..errors import InvalidInput
from ..policy import Action
from ..validation import refuse_held
from . import links, reading
from .pages import go_to, is_partial, page, scope_for, user_of


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.OPERATE)
def pause(request: HttpRequest) -> HttpResponse:
    """Ask why; pause the group."""
    if request.method != "POST":
        return _question(request, reading.group_of(request.GET))
    name = reading.group_of(request.POST)
    refuse_held(scope_for(request), name)
    try:
        reason = reading.text_of(request.POST, "reason", reading.LONGEST_REASON).strip()
    except InvalidInput as refused:
        return _question(request, name, refused)
    pauses.pause(name, by=user_of(request).username, reason=reason)
    messages.success(request, f"Paused {name}: claims find nothing in it.")
    return go_to(request, links.group_page(name))


@require_POST
@page(Action.OPERATE)
def resume(request: HttpRequest) -> HttpResponse:
    name = reading.group_of(request.POST)
    refuse_held(scope_for(request), name)
    pauses.resume(name, by=user_of(request).username)
    messages.success(request, f"Resumed {name}: claims find its tasks again.")
    return go_to(request, links.group_page(name))


def _question(request: HttpRequest, name: str, refused: InvalidInput | None = None) -> HttpResponse:
    return render(
        request,
        "console/_pause.html" if is_partial(request) else "console/pause.html",
        {
            "name": name,
            "counts": counts_of(name),
            "reason": request.POST.get("reason", ""),
            "errors": refused.fields if refused else {},
        },
        status=422 if refused else 200,
    )
