"""The page that adds a task."""

from __future__ import annotations

from collections.abc import Mapping

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from taskstore.errors import InvalidInput
from taskstore.types.checks import group_name
from taskstore.types.scalars import GROUP_LENGTH, KEY_LENGTH, LATEST_MS, MOST_PRIORITY
from taskstore.types.tasks import NewTask

from ..access import audit
from ..access.policy import Action
from ..forms import NOBODY, with_plain_ends
from ..models import Task
from .pages import actor_for, page
from .words import labels_in, number_in

UNITS_MS = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
# The fields of the form, by the field of the task that an error names.
FIELDS = {
    "group": "group",
    "data": "text",
    "labels": "labels",
    "priority": "priority",
    "timespec": "delay",
    "unique": "unique",
}


class NewTaskForm(forms.Form):
    """The fields of a new task."""

    group = forms.CharField(max_length=GROUP_LENGTH, strip=False)
    text = forms.CharField(required=False, strip=False, widget=forms.Textarea({"rows": 7}))
    delay = forms.CharField(initial="0")
    unit = forms.ChoiceField(choices=[(unit, unit) for unit in UNITS_MS])
    priority = forms.CharField(initial="0")
    labels = forms.CharField(required=False, widget=forms.Textarea({"rows": 2}))
    unique = forms.CharField(required=False, max_length=KEY_LENGTH, strip=False)

    def clean_group(self) -> str:
        name: str = self.cleaned_data["group"]
        problems = [text for _, text in group_name("group", name)]
        if problems:
            raise forms.ValidationError(problems)
        return name

    def clean_text(self) -> bytes:
        return with_plain_ends(self.cleaned_data["text"]).encode()

    def clean_delay(self) -> int:
        return number_in("delay", self.cleaned_data["delay"])

    def clean_unit(self) -> str:
        unit: str = self.cleaned_data["unit"]
        longest = LATEST_MS // 2 // UNITS_MS[unit]
        if self.cleaned_data.get("delay", 0) > longest:
            self.add_error("delay", f"must be at most {longest} {unit}")
        return unit

    def clean_priority(self) -> int:
        return number_in("priority", self.cleaned_data["priority"], least=-MOST_PRIORITY, most=MOST_PRIORITY)

    def clean_labels(self) -> Mapping[str, str]:
        return labels_in(self.cleaned_data["labels"])

    def task(self) -> NewTask:
        """Return the task that a valid form describes."""
        given = self.cleaned_data
        return NewTask(
            group=given["group"],
            data=given["text"],
            timespec_ms=-given["delay"] * UNITS_MS[given["unit"]],
            labels=given["labels"],
            priority=given["priority"],
            unique=given["unique"] or None,
        )


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.WORK)
def add(request: HttpRequest) -> HttpResponse:
    """Show the form; add the task, with its audit entry in the same transaction."""
    asked = request.POST if request.method == "POST" else None
    form = NewTaskForm(asked, initial={"group": request.GET.get("name", "")})
    if form.is_valid():
        actor = actor_for(request)
        try:
            with transaction.atomic():
                [task] = Task.objects.commit(owner=NOBODY, adds=[form.task()], scope=actor.scope)
                if not task.duplicate:
                    details = {"ids": [task.id]}
                    audit.record(actor, "add", group=task.group, selection=f"task {task.id}", done=1, details=details)
        except InvalidInput as refused:
            for path, texts in refused.fields.items():
                field = path.removeprefix("adds[0].").partition(".")[0]
                form.add_error(FIELDS.get(field), forms.ValidationError(texts))
        else:
            if task.duplicate:
                has_ended = " It has ended, but keeps the key for some time." if task.ending else ""
                messages.warning(request, f"Nothing was added: task {task.id} holds this key.{has_ended}")
            else:
                messages.success(request, f"Added task {task.id} to {task.group}.")
            return redirect("console:task", task.id)
    return render(request, "console/add.html", {"form": form}, status=422 if form.is_bound else 200)
