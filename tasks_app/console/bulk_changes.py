"""Requeue, move, edit and purge: asked about with the exact number, then begun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render, resolve_url
from django.views.decorators.http import require_POST, require_safe

from taskstore.errors import InvalidInput
from taskstore.types.tasks import State

from .. import bulk
from ..access.policy import Action
from ..bulk import Asked, Preview, Selection, Target, Verb
from ..models import Task
from ..reading.listing import Row, rows_of
from . import links, words
from . import parameters as reading
from .pages import actor_for, go_to, is_partial, page, user_of

MOST_TARGETS = 10  # Groups that a question names.


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a verb will do to what a preview has found, in numbers."""

    verb: Verb
    preview: Preview
    typed: str  # What has to be typed; empty: nothing.

    @property
    def selection(self) -> Selection:
        return self.preview.selection

    @property
    def url(self) -> str:
        return resolve_url(f"console:{links.PAGES_OF_VERBS[self.verb]}")

    @property
    def affected(self) -> int:
        return self.preview.count - self.preview.claimed - self.ready_already - self.preview.ended

    @property
    def with_claimed(self) -> int:
        return self.affected + self.preview.claimed

    @property
    def ready_already(self) -> int:
        return self.preview.ready_already if self.verb is Verb.REQUEUE else 0

    @property
    def button(self) -> str:
        """What the button says that does it to all but the claimed ones."""
        return self._button(self.affected)

    @property
    def button_with_claimed(self) -> str:
        return self._button(self.with_claimed)

    def _button(self, count: int) -> str:
        """A requeue that moves tasks says where to."""
        tasks = f"{words.number(count)} task{'' if count == 1 else 's'}"
        targets = self.preview.targets
        if not any(target.moved for target in targets):
            return f"{self.verb.capitalize()} {tasks}"
        where = targets[0].group if len(targets) == 1 else f"{words.number(len(targets))} groups"
        if any(target.moved < target.count for target in targets):
            return f"Requeue {tasks} in {where}"
        return f"Send back to {where}" + ("" if count == 1 else f" ({tasks})")

    @property
    def some_targets(self) -> Sequence[Target]:
        return self.preview.targets[:MOST_TARGETS]

    @property
    def more_targets(self) -> int:
        """How many groups are not named among those."""
        return len(self.preview.targets[MOST_TARGETS:])

    @property
    def missing(self) -> int:
        """How many of the selected ids are no longer there."""
        return 0 if self.selection.ids is None else len(self.selection.ids) - self.preview.count

    @property
    def by_state(self) -> list[tuple[State, int]]:
        return [(state, count) for state, count in self.preview.by_state.items() if count]

    @property
    def samples(self) -> list[Row]:
        return rows_of(self.preview.samples, self.selection.as_of_ms)


@require_safe
@page(Action.OPERATE)
def confirm(request: HttpRequest) -> HttpResponse:
    """Say what a verb would do to the selection, and ask."""
    selection = reading.selection_of(request.GET, user_of(request))
    return _confirmation(request, reading.verb_of(request.GET), selection)


@require_POST
@page(Action.OPERATE)
def requeue(request: HttpRequest) -> HttpResponse:
    return _do(request, Verb.REQUEUE)


@require_POST
@page(Action.OPERATE)
def move(request: HttpRequest) -> HttpResponse:
    return _do(request, Verb.MOVE)


@require_POST
@page(Action.OPERATE)
def edit(request: HttpRequest) -> HttpResponse:
    return _do(request, Verb.EDIT)


@require_POST
@page(Action.OPERATE)
def purge(request: HttpRequest) -> HttpResponse:
    return _do(request, Verb.PURGE)


def _do(request: HttpRequest, verb: Verb) -> HttpResponse:
    """Begin what was agreed to, or show the confirmation again, with what is wrong and the numbers as they are now."""
    actor = actor_for(request)
    reading.whole_number("bound", request.POST.get("bound", ""), least=1)
    selection = reading.selection_of(request.POST, user_of(request))
    asked = Asked(
        verb=verb,
        selection=selection,
        expected=reading.whole_number("expected", request.POST.get("expected", "")),
        parameters=reading.parameters_of(request.POST, verb),
        typed=request.POST.get("typed", ""),
    )
    back = _page_before(request.POST, selection)  # Read first: nothing may be refused after the deed.
    try:
        bulk.start(asked, actor)
    except InvalidInput as refused:
        return _confirmation(request, verb, selection, refused)
    return go_to(request, back)


def _confirmation(
    request: HttpRequest, verb: Verb, selection: Selection, refused: InvalidInput | None = None
) -> HttpResponse:
    asked = request.POST if refused else request.GET
    # Without the old bound: who is asked again sees what is there now.
    seen = bulk.preview(replace(selection, bound=0, as_of_ms=0), verb)
    return render(
        request,
        "console/_confirm.html" if is_partial(request) else "console/confirm.html",
        {
            "plan": Plan(verb=verb, preview=seen, typed=bulk.to_type(verb, seen)),
            "back": _page_before(asked, selection),
            "groups": Task.objects.groups() if verb is Verb.MOVE else [],
            "asked": asked,
            "errors": refused.fields if refused else {},
        },
        status=422 if refused else 200,
    )


def _page_before(asked: QueryDict, selection: Selection) -> str:
    """The page that the person came from: a task's, the group's tab, or the search."""
    if task := asked.get("task"):
        return resolve_url("console:task", reading.whole_number("task", task, least=1))
    if selection.group:
        return links.group_page(selection.group, reading.state_of(asked))
    return links.search_page(asked.get("q", ""))
