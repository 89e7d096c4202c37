"""The actions on selected tasks of the list: bulk operations, which can be undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.widgets import AdminTextInputWidget
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import resolve_url
from django.template.response import TemplateResponse
from django.utils.html import format_html

from taskstore.errors import Forbidden, InvalidInput
from taskstore.types.bulk_actions import WORDS, Kind, Option
from taskstore.types.scalars import GROUP_LENGTH, REASON_LENGTH
from taskstore.types.tasks import FAILED_FROM, State

from .. import bulk
from ..access.policy import actor_of, scope_of
from ..bulk import Action, Asked, Selection
from ..core.actors import Actor
from ..forms import sentence
from ..models import BulkOperation, Task
from .keyset import KeyedAdmin

FIELDS: Mapping[Kind, Callable[[], forms.Field]] = {
    Kind.GROUP: lambda: forms.CharField(max_length=GROUP_LENGTH, strip=False, widget=AdminTextInputWidget),
    Kind.TEXT: lambda: forms.CharField(strip=False, empty_value=None, widget=AdminTextInputWidget),
    Kind.FLAG: forms.BooleanField,
    Kind.PRIORITY: forms.IntegerField,
    Kind.TIME: forms.IntegerField,
    Kind.MINUTES: forms.IntegerField,
}


class Agreement(forms.Form):
    """The confirmation of an action: its options and a reason."""

    reason = forms.CharField(required=False, max_length=REASON_LENGTH, widget=AdminTextInputWidget)

    def __init__(self, asked: QueryDict | None, options: Sequence[Option]) -> None:
        super().__init__(asked)
        self._options = options
        for option in options:
            field = FIELDS[option.kind]()
            field.label, field.required = option.label, option.is_required
            field.help_text = "Leave empty to keep the current value." if option.default is None else option.hint
            self.fields[option.name] = field
        self.order_fields([*(option.name for option in options), "reason"])

    @property
    def given(self) -> dict[str, Any]:
        """Return the options of a valid form that say something."""
        given = {option.name: self.cleaned_data[option.name] for option in self._options}
        return {name: value for name, value in given.items() if value is not None}

    def refuse(self, refused: InvalidInput) -> None:
        for name, texts in refused.fields.items():
            self.add_error(name if name in self.fields else None, [sentence(text) for text in texts])


def _admin_action(name: str, action: type[Action]) -> Callable[..., HttpResponse | None]:
    """Return a bulk action as a function that Django's admin lists."""

    @admin.action(
        description=f"{action.words.label} selected tasks", permissions=["delete" if action.ends_tasks else "change"]
    )
    def act(shown: ActsOnSelected, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse | None:
        return shown.act(request, queryset, action)

    act.__name__ = name
    return act


class ActsOnSelected(KeyedAdmin):
    """The actions of the list of tasks."""

    actions = [_admin_action(name, action) for name, action in bulk.ACTIONS.items()]

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        # Django 6.1 says where the actions are shown, and earlier versions do not.
        where = {} if action_location is None else {"action_location": action_location}
        actions: dict[str, Any] = super().get_actions(request, **where)
        actions.pop("delete_selected", None)  # Django's own action would bypass the store.
        return actions

    def act(self, request: HttpRequest, queryset: QuerySet[Task], action: type[Action]) -> HttpResponse | None:
        """Change the selected tasks: at once when there is nothing to confirm, otherwise after the confirmation."""
        is_agreed = "post" in request.POST
        dead_letters = failed_from_by_id(ids_in(request))
        options = [option for option in action().options_for(len(dead_letters)) if not option.is_rare]
        if not (options or is_agreed or action.words.is_destructive):
            self._change(request, action(), reason="")
            return None
        tasks = list(self.for_list(queryset))
        if not tasks:
            self.message_user(request, "Nothing was done: the tasks no longer exist.", messages.ERROR)
            return None
        form = Agreement(request.POST if is_agreed else None, options)
        if form.is_valid():
            try:
                self._change(request, action(**form.given), reason=form.cleaned_data["reason"])
                return None
            except InvalidInput as refused:
                form.refuse(refused)
        title = f"{action.words.label} {tasks_in_words(len(tasks))}"
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            "button": self._where_to(request, action) or title,
            "lines": list(lines_of(tasks, action)),
            "ids": ids_in(request),
            "action": request.POST["action"],
            "is_destructive": action.words.is_destructive,
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
            "form": form,
        }
        return TemplateResponse(request, "admin/tasks_app/task/agree.html", context)

    def _where_to(self, request: HttpRequest, action: type[Action]) -> str:
        """Return the label of the button when a requeue moves all tasks to one group; empty otherwise."""
        selection = Selection(ids=tuple(ids_in(request)), scope=scope_of(user_of(request)))
        targets = bulk.preview(selection, action()).targets
        is_one = len(targets) == 1 and targets[0].moved >= targets[0].count
        return f"Send back to {targets[0].group}" if is_one else ""

    def _change(self, request: HttpRequest, action: Action, *, reason: str) -> None:
        """Run the action and show its result. Raises InvalidInput about the options."""
        ids = ids_in(request)
        operation = begin(action, ids, actor_of(user_of(request), reason))
        level = messages.SUCCESS if operation.done else messages.WARNING
        self.message_user(request, describe_result(operation, len(ids)), level)


@contextmanager
def forbidden_as_django() -> Iterator[None]:
    """Convert Forbidden to PermissionDenied, for which Django has a page."""
    try:
        yield
    except Forbidden as refused:
        raise PermissionDenied(str(refused)) from None


def user_of(request: HttpRequest) -> User:
    """Return the person who is signed in; only within the admin's pages."""
    assert isinstance(request.user, User)  # noqa: S101 - the admin has checked it.
    return request.user


def begin(action: Action, ids: Sequence[int], actor: Actor) -> BulkOperation:
    """Start the action on the tasks that still exist. Raises PermissionDenied when their group may not be changed."""
    seen = bulk.preview(Selection(ids=tuple(ids), scope=actor.scope))
    asked = Asked(action=action, selection=seen.selection, expected=seen.count)
    with forbidden_as_django():
        return bulk.start(asked, actor)


def describe_result(operation: BulkOperation, meant: int) -> str:
    """Describe the result of an operation on so many tasks, with a link to its undo."""
    address = f"{resolve_url('console:overview')}operations/{operation.pk}"
    if operation.state == BulkOperation.State.RUNNING:
        what = f"{WORDS[operation.verb].doing} {tasks_in_words(meant)} is running."
        return format_html('{} <a href="{}">View it</a>.', what, address)
    what = " ".join(sentences(operation, meant))
    return format_html('{} <a href="{}">Undo it</a>.', what, address) if operation.done else what


def sentences(operation: BulkOperation, meant: int) -> Iterator[str]:
    yield f"{WORDS[operation.verb].done} {tasks_in_words(operation.done)}."
    for why, number in bulk.reasons(operation.pk).items():
        yield f"Skipped {number}: {why}."
    if operation.failed:
        yield f"Failed: {operation.failed}."
    if gone := meant - operation.done - operation.skipped - operation.failed:
        yield f"Already gone: {gone}."


def ids_in(request: HttpRequest) -> list[int]:
    """Return the ids of the selected rows, which `response_action` has validated."""
    return list(dict.fromkeys(map(int, request.POST.getlist(ACTION_CHECKBOX_NAME))))


def failed_from_by_id(ids: Sequence[int]) -> dict[int, str]:
    """Return the group in which each dead letter among the tasks failed."""
    labels = Task.objects.get_queryset().bearing(FAILED_FROM).filter(id__in=ids).values_list("id", "labels")
    return {task_id: borne[FAILED_FROM] for task_id, borne in labels}


def lines_of(tasks: Sequence[Task], action: type[Action]) -> Iterator[str]:
    """Describe each task; of a requeue, with its target."""
    now_ms = Task.objects.now_ms()
    failed_from = failed_from_by_id([task.id for task in tasks]) if action.makes_available else {}
    for task in tasks:
        is_claimed = task.state(now_ms) is State.CLAIMED
        to = bulk.target_of(task.group, failed_from.get(task.id, "")) or task.group if failed_from else task.group
        where = f", goes back to {to}" if to != task.group else ""
        yield f"{task}{where}" + (f", claimed by {task.owner}: skipped" if is_claimed else "")


def tasks_in_words(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
