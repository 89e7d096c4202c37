"""What is done to the tasks that were selected in the list: bulk operations, which can be undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.widgets import AdminTextInputWidget
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.template.response import TemplateResponse
from django.utils.html import format_html

from taskstore.errors import Forbidden, InvalidInput
from taskstore.types.tasks import FAILED_FROM, State

from .. import bulk
from ..access.policy import actor_of, scope_of
from ..bulk import Asked, Parameters, Selection, Verb
from ..core.actors import REASON_LENGTH, Actor
from ..core.validation import GROUP_LENGTH
from ..models import BulkOperation, Task
from .keyset import KeyedAdmin

DONE = {Verb.REQUEUE: "Requeued", Verb.MOVE: "Moved", Verb.PURGE: "Purged"}


class Agreement(forms.Form):
    """What is asked before selected tasks are changed."""

    reason = forms.CharField(required=False, max_length=REASON_LENGTH, widget=AdminTextInputWidget)

    def refuse(self, refused: InvalidInput) -> None:
        for name, texts in refused.fields.items():
            self.add_error(name if name in self.fields else None, texts)


class MoveAgreement(Agreement):
    field_order = ("to", "create", "reason")

    to = forms.CharField(max_length=GROUP_LENGTH, strip=False, label="To the group", widget=AdminTextInputWidget)
    create = forms.BooleanField(required=False, label="It may be a new one")


class RequeueAgreement(Agreement):
    field_order = ("here", "reason")

    here = forms.BooleanField(required=False, label="Requeue here: leave dead letters in their group")


class ActsOnSelected(KeyedAdmin):
    """The actions of the list of tasks."""

    actions = ("requeue", "move", "delete_selected")

    @admin.action(description="Requeue selected tasks", permissions=["change"])
    def requeue(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse | None:
        """At once, unless dead letters are among them: then it says where they go, and asks."""
        is_agreed = "post" in request.POST
        if not is_agreed and not any(map(failed_from_by_id(ids_in(request)).get, ids_in(request))):
            self._change(request, Verb.REQUEUE, Parameters(), reason="")
            return None
        form = RequeueAgreement(request.POST if is_agreed else None)
        return self._once_agreed(request, queryset, Verb.REQUEUE, form)

    @admin.action(description="Move selected tasks", permissions=["change"])
    def move(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse | None:
        form = MoveAgreement(request.POST if "post" in request.POST else None)
        return self._once_agreed(request, queryset, Verb.MOVE, form)

    # In the place of Django's own, which knows nothing of the store.
    @admin.action(description="Purge selected tasks", permissions=["delete"])
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse | None:
        form = Agreement(request.POST if "post" in request.POST else None)
        return self._once_agreed(request, queryset, Verb.PURGE, form)

    def _once_agreed(
        self, request: HttpRequest, queryset: QuerySet[Task], verb: Verb, form: Agreement
    ) -> HttpResponse | None:
        tasks = list(self.for_list(queryset))
        if not tasks:
            self.message_user(request, "Nothing was done: the tasks are no longer there.", messages.ERROR)
            return None
        return None if self._is_changed(request, verb, form) else self._question(request, tasks, verb, form)

    def _is_changed(self, request: HttpRequest, verb: Verb, form: Agreement) -> bool:
        """Whether it was agreed to and done. If not, the form says why."""
        if not form.is_valid():
            return False
        typed = form.cleaned_data
        parameters = Parameters(
            to=typed.get("to", ""), create=typed.get("create", False), here=typed.get("here", False)
        )
        try:
            self._change(request, verb, parameters, reason=typed["reason"])
        except InvalidInput as refused:
            form.refuse(refused)
            return False
        return True

    def _question(self, request: HttpRequest, tasks: Sequence[Task], verb: Verb, form: Agreement) -> HttpResponse:
        title = f"{verb.capitalize()} {tasks_in_words(len(tasks))}"
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            "button": self._where_to(request, verb) or title,
            "lines": list(lines_of(tasks, verb)),
            "ids": ids_in(request),
            "action": request.POST["action"],
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
            "form": form,
        }
        return TemplateResponse(request, "admin/tasks_app/task/agree.html", context)

    def _where_to(self, request: HttpRequest, verb: Verb) -> str:
        """The text of the button, where a requeue moves all tasks to one group; else empty."""
        selection = Selection(ids=tuple(ids_in(request)), scope=scope_of(user_of(request)))
        targets = bulk.preview(selection, verb).targets
        is_one = len(targets) == 1 and targets[0].moved >= targets[0].count
        return f"Send back to {targets[0].group}" if is_one else ""

    def _change(self, request: HttpRequest, verb: Verb, parameters: Parameters, *, reason: str) -> None:
        """Do it, and say what came of it. Raises InvalidInput about the parameters."""
        ids = ids_in(request)
        operation = begin(verb, ids, actor_of(user_of(request), reason), parameters)
        level = messages.SUCCESS if operation.done else messages.WARNING
        self.message_user(request, told(operation, len(ids)), level)


@contextmanager
def forbidden_as_django() -> Iterator[None]:
    """Raises PermissionDenied, for which Django has a page, with the text of what the store forbids."""
    try:
        yield
    except Forbidden as refused:
        raise PermissionDenied(str(refused)) from None


def user_of(request: HttpRequest) -> User:
    """The person who is signed in; only within the admin's pages."""
    assert isinstance(request.user, User)  # noqa: S101 - the admin lets in nobody else.
    return request.user


def begin(verb: Verb, ids: Sequence[int], actor: Actor, parameters: Parameters) -> BulkOperation:
    """Do it to those of the tasks that are still there. Raises PermissionDenied when their group may not be changed."""
    seen = bulk.preview(Selection(ids=tuple(ids), scope=actor.scope))
    asked = Asked(
        verb=verb,
        selection=seen.selection,
        expected=seen.count,
        parameters=parameters,
    )
    with forbidden_as_django():
        return bulk.start(asked, actor)


def told(operation: BulkOperation, meant: int) -> str:
    """What came of an operation on so many tasks, with the way to its undo."""
    address = f"{resolve_url('console:overview')}operations/{operation.pk}"
    if operation.state == BulkOperation.State.RUNNING:
        what = f"{operation.verb.capitalize()} {tasks_in_words(meant)} is under way."
        return format_html('{} <a href="{}">Look at it</a>.', what, address)
    what = " ".join(sentences(operation, meant))
    return format_html('{} <a href="{}">Undo it</a>.', what, address) if operation.done else what


def sentences(operation: BulkOperation, meant: int) -> Iterator[str]:
    yield f"{DONE[Verb(operation.verb)]} {tasks_in_words(operation.done)}."
    for why, number in bulk.reasons(operation.pk).items():
        yield f"Skipped {number}: {why}."
    if operation.failed:
        yield f"Failed: {operation.failed}."
    if gone := meant - operation.done - operation.skipped - operation.failed:
        yield f"No longer there: {gone}."


def ids_in(request: HttpRequest) -> list[int]:
    """Of the rows that are selected; `response_action` has seen that they are numbers."""
    return list(dict.fromkeys(map(int, request.POST.getlist(ACTION_CHECKBOX_NAME))))


def failed_from_by_id(ids: Sequence[int]) -> dict[int, str]:
    """Of those of the tasks that are dead letters: the group that each failed in."""
    labels = Task.objects.get_queryset().bearing(FAILED_FROM).filter(id__in=ids).values_list("id", "labels")
    return {task_id: borne[FAILED_FROM] for task_id, borne in labels}


def lines_of(tasks: Sequence[Task], verb: Verb) -> Iterator[str]:
    """What each of them is; of a requeue also where it goes."""
    now_ms = Task.objects.now_ms()
    failed_from = failed_from_by_id([task.id for task in tasks]) if verb is Verb.REQUEUE else {}
    for task in tasks:
        is_claimed = task.state(now_ms) is State.CLAIMED
        to = bulk.target_of(task.group, failed_from.get(task.id, "")) or task.group if failed_from else task.group
        where = f", goes back to {to}" if to != task.group else ""
        yield f"{task}{where}" + (f", claimed by {task.owner}: it is skipped" if is_claimed else "")


def tasks_in_words(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
