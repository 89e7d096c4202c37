"""The page that edits a task: the form, a review of the differences, then one commit."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from taskstore.errors import CommitRefused, InvalidInput
from taskstore.types.tasks import ATTEMPTS, CONTENT, FAILED_FROM, Change, Ending, NewTask, State

from .. import bulk
from ..access import audit
from ..access.policy import Action, may
from ..forms import NOBODY, TaskForm, written
from ..models import Task
from . import words
from .pages import actor_for, page, user_of

CONTEXT = 3  # Unchanged lines around a difference.


class EditForm(TaskForm):
    """The new values of a task, with the option to requeue it; a dead letter can be requeued where it is."""

    requeue = forms.BooleanField(required=False)
    here = forms.BooleanField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not (self.replaces and self.replaces.failed_from):
            del self.fields["here"]

    @property
    def change(self) -> Change:
        """Return the change that a valid form describes."""
        assert isinstance(self.operation, Change)  # noqa: S101 - the form has an existing task.
        return self.operation

    def _operation(self) -> NewTask | Change:
        operation = super()._operation()
        if not self.cleaned_data["requeue"] or isinstance(operation, NewTask):
            return operation
        change = replace(operation, error="", timespec_ms=0)
        if not self.replaces or "group" in self.changed_data:
            return change
        again = bulk.requeued(self.replaces, here=self.cleaned_data.get("here", False))
        if isinstance(again, bulk.Skip):
            raise InvalidInput({"requeue": [f"can't be done: the task is {again.why}"]})
        labels = {name: value for name, value in (change.labels or {}).items() if name != ATTEMPTS}
        return replace(
            change, group=again.group, failed_from="", labels=labels if self.replaces.failed_from else change.labels
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field that the edit changes, as lines that begin with "-", "+" or a space."""

    name: str
    lines: list[str]


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.OPERATE)
def edit(request: HttpRequest, task_id: int) -> HttpResponse:
    """Show the form, then the differences; commit the change once it is confirmed."""
    [task] = Task.objects.find([task_id])
    if task is None:
        return _too_late(request, task_id)
    may_see_data = may(user_of(request), Action.SEE_PAYLOADS, task.group)
    asked = request.POST if request.method == "POST" else None
    form = EditForm(asked, instance=task, may_see_data=may_see_data, initial={"requeue": task.is_failed})
    context = {"task": task, "form": form, "is_claimed": task.state(Task.objects.now_ms()) is State.CLAIMED}
    if asked is None or "again" in asked or not form.is_valid():
        context |= {"shows_data": "content" in form.fields, "may_see_data": may_see_data}
        return render(request, "console/edit.html", context, status=422 if asked and "again" not in asked else 200)
    differences = list(differences_of(task, form.change))
    if "confirmed" not in asked or not differences:
        return render(request, "console/edit_review.html", context | {"differences": differences})
    actor, is_requeued = actor_for(request), form.cleaned_data["requeue"]
    operator = actor.operator(Ending.REQUEUED if is_requeued else Ending.CHANGED)
    try:
        with transaction.atomic():
            [successor] = Task.objects.commit(owner=NOBODY, updates=[form.change], scope=actor.scope, operator=operator)
            audit.record(
                actor,
                "edit",
                group=successor.group,
                selection=f"task {task.id}",
                done=1,
                details={"ids": [task.id, successor.id], "requeued": is_requeued},
            )
    except CommitRefused:
        return _too_late(request, task.id)
    messages.success(request, f"Task {task.id} is now {successor.id}.")
    return redirect("console:task", successor.id)


def differences_of(task: Task, change: Change) -> Iterator[Difference]:
    """Yield the fields that the change alters."""
    in_words = {"data": lambda data: written(bytes(data))[1], "labels": _in_lines}
    pairs = {}
    for name in CONTENT:
        before, after = getattr(task, name), getattr(change, name)
        shown = in_words.get(name, str)
        pairs[name.replace("_", " ")] = shown(before), shown(before if after is None else after)
    pairs |= {
        "available": (_moment(task.available_at_ms), _moment(change.timespec_ms)),
        "lease": (f"held by {task.owner}" if task.leased else "", ""),
    }
    for name, (before, after) in pairs.items():
        if before != after:
            yield Difference(name=name, lines=lines_of_difference(before, after))


def lines_of_difference(before: str, after: str) -> list[str]:
    """Return the lines of a Difference."""
    # Not splitlines, which ignores a line break at the end.
    old, new = (text.split("\n") if text else [] for text in (before, after))
    _, _, *lines = difflib.unified_diff(old, new, n=CONTEXT, lineterm="")
    places = [line for line in lines if line.startswith("@@")]
    # A single hunk needs no line numbers.
    return lines if len(places) > 1 else [line for line in lines if line not in places]


def _in_lines(labels: Any) -> str:
    own = {name: value for name, value in labels.items() if name != FAILED_FROM}  # The group shows it already.
    return json.dumps(own, ensure_ascii=False, indent=1, sort_keys=True)


def _moment(at_ms: int) -> str:
    # To a worker, available since a while ago and available now are the same.
    return "now" if at_ms <= Task.objects.now_ms() else words.exact(at_ms)


def _too_late(request: HttpRequest, task_id: int) -> HttpResponse:
    """Say that the task was finished, claimed or changed during the edit."""
    return render(request, "console/edit_too_late.html", {"task_id": task_id}, status=409)
