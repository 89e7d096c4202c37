"""Requeue, move and purge: asked about with the exact number, then done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render, resolve_url
from django.views.decorators.http import require_POST, require_safe

from .. import bulk
from ..bulk import Preview, Result, Selection
from ..errors import InvalidInput
from ..models import Task
from ..operations import State
from ..policy import Action
from . import links, reading
from .pages import go_to, is_partial, page, user_of
from .reading import Confirmed, Verb

DONE = {Verb.REQUEUE: "Requeued", Verb.MOVE: "Moved", Verb.PURGE: "Purged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a verb will do to what a preview has found, in numbers."""

    verb: Verb
    selection: Selection
    preview: Preview

    @property
    def url(self) -> str:
        return resolve_url(f"console:{self.verb}")

    @property
    def affected(self) -> int:
        return self.preview.count - self.preview.claimed - self.ready_already

    @property
    def ready_already(self) -> int:
        return self.preview.ready_already if self.verb is Verb.REQUEUE else 0

    @property
    def missing(self) -> int:
        """How many of the selected ids are no longer there."""
        return 0 if self.selection.ids is None else len(self.selection.ids) - self.preview.count

    @property
    def by_state(self) -> list[tuple[State, int]]:
        return [(state, count) for state, count in self.preview.by_state.items() if count]

    @property
    def needs_typed_name(self) -> bool:
        return self.verb is Verb.PURGE and bulk.needs_typed_name(self.selection, self.preview.count)


@require_safe
@page(Action.OPERATE)
def confirm(request: HttpRequest) -> HttpResponse:
    """Say what a verb would do to the selection, and ask."""
    return _confirmation(request, reading.verb_of(request.GET), reading.selection_of(request.GET))


@require_POST
@page(Action.OPERATE)
def requeue(request: HttpRequest) -> HttpResponse:
    return _do(
        request,
        Verb.REQUEUE,
        lambda agreed, by: bulk.requeue(agreed.selection, expected=agreed.expected, by=by, reason=agreed.reason),
    )


@require_POST
@page(Action.OPERATE)
def move(request: HttpRequest) -> HttpResponse:
    return _do(
        request,
        Verb.MOVE,
        lambda agreed, by: bulk.move(
            agreed.selection,
            agreed.to,
            expected=agreed.expected,
            by=by,
            create=agreed.create,
            reason=agreed.reason,
        ),
    )


@require_POST
@page(Action.OPERATE)
def purge(request: HttpRequest) -> HttpResponse:
    return _do(
        request,
        Verb.PURGE,
        lambda agreed, by: bulk.purge(
            agreed.selection, expected=agreed.expected, by=by, typed=agreed.typed, reason=agreed.reason
        ),
    )


def _do(request: HttpRequest, verb: Verb, change: Callable[[Confirmed, str], Result]) -> HttpResponse:
    """Do what was agreed to, or show the confirmation again, with what is wrong and the numbers as they are now."""
    agreed = reading.confirmed_of(request.POST)
    back = _page_before(request.POST, agreed.selection)  # Read first: nothing may be refused after the deed.
    try:
        result = change(agreed, user_of(request).username)
    except InvalidInput as refused:
        return _confirmation(request, verb, agreed.selection, refused)
    messages.success(request, _told(verb, agreed, result))
    return go_to(request, back)


def _confirmation(
    request: HttpRequest, verb: Verb, selection: Selection, refused: InvalidInput | None = None
) -> HttpResponse:
    asked = request.POST if refused else request.GET
    return render(
        request,
        "console/_confirm.html" if is_partial(request) else "console/confirm.html",
        {
            # Without the old bound: who is asked again sees what is there now.
            "plan": Plan(verb=verb, selection=selection, preview=bulk.preview(replace(selection, bound=0))),
            "tab": reading.state_of(asked),
            "back": _page_before(asked, selection),
            "groups": Task.objects.groups() if verb is Verb.MOVE else [],
            "asked": asked,
            "errors": refused.fields if refused else {},
        },
        status=422 if refused else 200,
    )


def _told(verb: Verb, agreed: Confirmed, result: Result) -> str:
    """The result in a sentence."""
    where = f"from {agreed.selection.group} to {agreed.to}" if verb is Verb.MOVE else f"in {agreed.selection.group}"
    skipped = ", ".join(f"{count} {why}" for why, count in result.skipped.items())
    noun = "task" if result.done == 1 else "tasks"
    return f"{DONE[verb]} {result.done} {noun} {where}." + (f" Skipped: {skipped}." if skipped else "")


def _page_before(asked: QueryDict, selection: Selection) -> str:
    """The page that the person came from: a task's, or the group's tab."""
    if task := asked.get("task"):
        return resolve_url("console:task", reading.whole_number("task", task, least=1))
    return links.group_page(selection.group, reading.state_of(asked))
