"""The page of a group: its tasks by state."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ..counts import Counts, counts_of
from ..failures import failures
from ..listing import facts_of, page_of
from ..operations import State
from ..pauses import pause_of
from ..policy import Action, may
from . import reading
from .commands import command_to_add
from .pages import page, user_of


@require_safe
@page(Action.SEE)
def group(request: HttpRequest) -> HttpResponse:
    name, state = reading.group_of(request.GET), reading.state_of(request.GET)
    after, before = reading.places_of(request.GET)
    user, counts = user_of(request), counts_of(name)
    sees_payloads = may(user, Action.SEE_PAYLOADS, name)
    return render(
        request,
        "console/group.html",
        {
            "name": name,
            "state": state,
            "counts": counts,
            "matching": getattr(counts, state) if state else counts.total,
            "tabs": tabs_of(counts),
            "facts": facts_of(name),
            "pause": pause_of(name),
            "failures": failures(name) if state is State.FAILED else None,
            "command": command_to_add(request, name),
            "page": page_of(name, state, after=after, before=before, with_data=sees_payloads),
            "sees_payloads": sees_payloads,
            "may_operate": may(user, Action.OPERATE, name),
        },
    )


@require_safe
@page(Action.SEE)
def facts(request: HttpRequest) -> HttpResponse:
    """The facts alone, which an open page asks for again and again."""
    name = reading.group_of(request.GET)
    return render(request, "console/_facts.html", {"name": name, "facts": facts_of(name)})


def tabs_of(counts: Counts) -> list[tuple[State | None, int]]:
    """The tabs with the numbers on them; None stands for all states."""
    states = (State.READY, State.CLAIMED, State.EXPIRED, State.SCHEDULED, State.FAILED)
    return [(None, counts.total), *((state, getattr(counts, state)) for state in states)]
