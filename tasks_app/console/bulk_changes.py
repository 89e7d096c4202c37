"""Bulk operations: the confirmation with exact numbers, and the start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render, resolve_url

from taskstore.errors import InvalidInput
from taskstore.types.bulk_actions import BulkAction as Words
from taskstore.types.bulk_actions import Kind
from taskstore.units import counted

from .. import bulk
from ..access.policy import Action
from ..bulk import Action as BulkAction
from ..bulk import Asked, Preview, Selection
from ..models import Task
from ..reading.pages import rows_of
from . import links, parameters
from .pages import actor_for, changes, go_to, is_partial, reads, user_of

MOST_TARGETS = 10  # Groups that a confirmation names.
INPUT_TYPES = {Kind.TIME: "datetime-local", Kind.MINUTES: "number", Kind.PRIORITY: "number"}


def plan_of(action: BulkAction, preview: Preview, asked: QueryDict) -> dict[str, Any]:
    """Return the effect of an action on the tasks of a preview, in numbers, and the fields of its options."""
    ready_already = preview.ready_already if action.makes_available else 0
    affected = preview.count - preview.claimed - ready_already - preview.ended
    selection, options = preview.selection, action.options_for(preview.dead_letters)
    # Each with its value. Of one with a checkbox, the value stays as it is while that is unticked.
    fields = [
        (option, INPUT_TYPES.get(option.kind, "text"), asked.get(option.name, ""), f"set_{option.name}" in asked)
        for option in options
    ]
    rare = [field for field in fields if field[0].is_rare]
    takes_group = any(option.kind is Kind.GROUP for option in options)
    return {
        "preview": preview,
        "selection": selection,
        "words": action.words,
        "url": resolve_url(links.page_of_action(action.words.name)),
        "typed": bulk.to_type(action.words, preview),  # Empty: nothing needs to be typed to confirm.
        "otherwise": [option.otherwise for option in options if option.otherwise],
        "plain_fields": [each for each in fields if not each[0].is_rare and each[0].default is not None],
        "settable_fields": [each for each in fields if each[0].default is None],
        "rare_fields": rare,
        "has_rare_values": any(value for _, _, value, _ in rare),
        "groups": Task.objects.groups() if takes_group else [],
        "affected": affected,
        "ready_already": ready_already,
        "button": _button(action.words, preview, affected),
        "button_with_claimed": _button(action.words, preview, affected + preview.claimed),
        "some_targets": preview.targets[:MOST_TARGETS],
        "more_targets": len(preview.targets[MOST_TARGETS:]),
        "missing": 0 if selection.ids is None else len(selection.ids) - preview.count,  # They no longer exist.
        "by_state": [(state, count) for state, count in preview.by_state.items() if count],
        "samples": rows_of(preview.samples, selection.as_of_ms),
    }


def _button(words: Words, preview: Preview, count: int) -> str:
    """Return the words of the button. A requeue that moves tasks names the target."""
    tasks, targets = counted(count, "task"), preview.targets
    if not any(target.moved for target in targets):
        return f"{words.label} {tasks}"
    where = targets[0].group if len(targets) == 1 else counted(len(targets), "group")
    if any(target.moved < target.count for target in targets):
        return f"{words.label} {tasks} in {where}"
    return f"Send back to {where}" + ("" if count == 1 else f" ({tasks})")


@reads(Action.OPERATE)
def confirm(request: HttpRequest) -> HttpResponse:
    """Show the effect of an action on the selection, and ask for confirmation."""
    selection = parameters.selection_of(request.GET, user_of(request))
    return _confirmation(request, bulk.action_named(request.GET.get("verb", "")), selection)


@changes(Action.OPERATE)
def begin(request: HttpRequest, verb: str) -> HttpResponse:
    """Start the confirmed action, or show the confirmation again with the errors and the current numbers."""
    actor = actor_for(request)
    parameters.whole_number("bound", request.POST.get("bound", ""), least=1)
    selection = parameters.selection_of(request.POST, user_of(request))
    asked = Asked(
        action=parameters.action_in(request.POST, verb),
        selection=selection,
        expected=parameters.whole_number("expected", request.POST.get("expected", "")),
        typed=request.POST.get("typed", ""),
    )
    back = _page_before(request.POST, selection)  # Read first: nothing may fail after the start.
    try:
        bulk.start(asked, actor)
    except InvalidInput as refused:
        return _confirmation(request, type(asked.action), selection, refused)
    return go_to(request, back)


def _confirmation(
    request: HttpRequest, action: type[BulkAction], selection: Selection, refused: InvalidInput | None = None
) -> HttpResponse:
    asked = request.POST if refused else request.GET
    # Drop the old bound: a repeated confirmation shows the current tasks.
    fresh = action()
    seen = bulk.preview(replace(selection, bound=0, as_of_ms=0), fresh)
    actor_for(request).must_change(seen.group)
    return render(
        request,
        "tasks_app/_confirm.html" if is_partial(request) else "tasks_app/confirm.html",
        {
            "plan": plan_of(fresh, seen, asked),
            "back": _page_before(asked, selection),
            "asked": asked,
            "errors": refused.fields if refused else {},
        },
        status=422 if refused else 200,
    )


def _page_before(asked: QueryDict, selection: Selection) -> str:
    """Return the page that the person came from: the task, the group's tab, or the search."""
    if task := asked.get("task"):
        return resolve_url("tasks_app:task", parameters.whole_number("task", task, least=1))
    if selection.group:
        return links.to("group", name=selection.group, state=parameters.state_of(asked))
    return links.to("search", q=asked.get("q", ""))
