"""Bulk operations: the confirmation with exact numbers, and the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render, resolve_url
from django.views.decorators.http import require_POST, require_safe

from taskstore.errors import InvalidInput
from taskstore.types.bulk_actions import BulkAction as Words
from taskstore.types.bulk_actions import Kind, Option
from taskstore.types.tasks import State
from taskstore.units import counted

from .. import bulk
from ..access.policy import Action
from ..bulk import Action as BulkAction
from ..bulk import Asked, Preview, Selection, Target
from ..models import Task
from ..reading.listing import Row, rows_of
from . import links, parameters
from .pages import actor_for, go_to, is_partial, page, user_of

MOST_TARGETS = 10  # Groups that a confirmation names.
INPUT_TYPES = {Kind.TIME: "datetime-local", Kind.MINUTES: "number", Kind.PRIORITY: "number"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An option of an action, as a field of the confirmation."""

    option: Option
    value: str
    is_set: bool  # Whether the checkbox of an optional option is ticked.

    @property
    def input_type(self) -> str:
        return INPUT_TYPES.get(self.option.kind, "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The effect of an action on the tasks of a preview, in numbers."""

    action: BulkAction
    preview: Preview
    asked: QueryDict

    @property
    def words(self) -> Words:
        return self.action.words

    @property
    def typed(self) -> str:
        """Return the text that the person must type to confirm; empty when none is needed."""
        return bulk.to_type(self.words, self.preview)

    @property
    def fields(self) -> list[Field]:
        return [
            Field(option=option, value=self.asked.get(option.name, ""), is_set=f"set_{option.name}" in self.asked)
            for option in self.action.options_for(self.preview.dead_letters)
        ]

    @property
    def plain_fields(self) -> list[Field]:
        """Return the fields that are always visible."""
        return [field for field in self.fields if not field.option.is_rare and field.option.default is not None]

    @property
    def settable_fields(self) -> list[Field]:
        """Return the fields with a checkbox: unticked, the value stays as it is."""
        return [field for field in self.fields if field.option.default is None]

    @property
    def rare_fields(self) -> list[Field]:
        return [field for field in self.fields if field.option.is_rare]

    @property
    def has_rare_values(self) -> bool:
        return any(field.value for field in self.rare_fields)

    @property
    def groups(self) -> list[str]:
        """Return the group names to choose from; empty when no field takes a group."""
        return Task.objects.groups() if any(field.option.kind is Kind.GROUP for field in self.fields) else []

    @property
    def selection(self) -> Selection:
        return self.preview.selection

    @property
    def url(self) -> str:
        return resolve_url(links.page_of_action(self.words.name))

    @property
    def affected(self) -> int:
        return self.preview.count - self.preview.claimed - self.ready_already - self.preview.ended

    @property
    def with_claimed(self) -> int:
        return self.affected + self.preview.claimed

    @property
    def ready_already(self) -> int:
        return self.preview.ready_already if self.action.makes_available else 0

    @property
    def button(self) -> str:
        """Return the label of the button that leaves leased tasks out."""
        return self._button(self.affected)

    @property
    def button_with_claimed(self) -> str:
        return self._button(self.with_claimed)

    def _button(self, count: int) -> str:
        # A requeue that moves tasks names the target.
        tasks = counted(count, "task")
        targets = self.preview.targets
        if not any(target.moved for target in targets):
            return f"{self.words.label} {tasks}"
        where = targets[0].group if len(targets) == 1 else counted(len(targets), "group")
        if any(target.moved < target.count for target in targets):
            return f"{self.words.label} {tasks} in {where}"
        return f"Send back to {where}" + ("" if count == 1 else f" ({tasks})")

    @property
    def some_targets(self) -> Sequence[Target]:
        return self.preview.targets[:MOST_TARGETS]

    @property
    def more_targets(self) -> int:
        """Return the number of target groups that are not named."""
        return len(self.preview.targets[MOST_TARGETS:])

    @property
    def missing(self) -> int:
        """Return the number of selected ids that no longer exist."""
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
    """Show the effect of an action on the selection, and ask for confirmation."""
    selection = parameters.selection_of(request.GET, user_of(request))
    return _confirmation(request, bulk.action_named(request.GET.get("verb", "")), selection)


@require_POST
@page(Action.OPERATE)
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
            "plan": Plan(action=fresh, preview=seen, asked=asked),
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
