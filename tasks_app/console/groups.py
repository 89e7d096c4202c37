"""The page of a group: its tasks by state."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from ..clients import attending
from ..counts import Counts, counts_of, flow_of
from ..failures import failures
from ..listing import facts_of, page_of
from ..operations import State
from ..pauses import pause_of
from ..policy import Action, may
from ..rates import Span
from . import links, reading
from .commands import command_to_add
from .pages import page, user_of
from .replica import from_replica
from .words import drain


@require_safe
@page(Action.SEE)
@from_replica
def group(request: HttpRequest) -> HttpResponse:
    name, state = reading.group_of(request.GET), reading.state_of(request.GET)
    if label := reading.label_of(request.GET):
        # A search says how far it looked; a page of a group would look on, however rare the label is.
        return redirect(links.labelled_page(name, state, label))
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
            **_facts(name, counts),
            "pause": pause_of(name),
            "failures": failures(name) if state is State.FAILED else None,
            "command": command_to_add(request, name),
            "span": reading.span_of(request.GET),
            "spans": list(Span),
            "page": page_of(name, state, after=after, before=before, with_data=sees_payloads),
            "sees_payloads": sees_payloads,
            "may_operate": may(user, Action.OPERATE, name),
        },
    )


@require_safe
@page(Action.SEE)
@from_replica
def facts(request: HttpRequest) -> HttpResponse:
    """The facts alone, which an open page asks for again and again."""
    name = reading.group_of(request.GET)
    return render(request, "console/_facts.html", {"name": name, **_facts(name, counts_of(name))})


def _facts(name: str, counts: Counts) -> dict[str, Any]:
    entered, left = flow_of(name)
    return {
        "facts": facts_of(name),
        "in_per_minute": entered,
        "out_per_minute": left,
        "drained": drain(counts.ready + counts.expired, entered, left),
        "workers": attending(name),
    }


def tabs_of(counts: Counts) -> list[tuple[State | None, int]]:
    """The tabs with the numbers on them; None stands for all states."""
    states = (State.READY, State.CLAIMED, State.EXPIRED, State.SCHEDULED, State.FAILED)
    return [(None, counts.total), *((state, getattr(counts, state)) for state in states)]
