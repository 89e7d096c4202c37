"""Export and import in the console."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render, resolve_url

from taskstore.errors import InvalidInput
from taskstore.types.requests import Add
from taskstore.types.scalars import GROUP_LENGTH
from taskstore.types.tasks import NewTask
from taskstore.units import counted, number

from ..access import audit
from ..access.policy import Action, may
from ..core.operations import Commit
from ..forms import NOBODY
from ..models import Task
from ..reading import importing
from ..reading.exporting import Export, download
from . import links, parameters, payload
from .pages import actor_for, asks, go_to, is_partial, reads, user_of
from .parameters import terms_of


@reads(Action.SEE)
def export(request: HttpRequest) -> HttpResponseBase:
    """Download the tasks of a search or of a group's tab; without data for people who may not see it."""
    user = user_of(request)
    export = Export(
        terms=terms_of(request.GET.get("q", ""), user),
        format=parameters.format_of(request.GET),
        with_data=may(user, Action.SEE_PAYLOADS),
    )
    return download(request, export)


SAMPLES = 3
LINE_BYTES = 200  # Of the data of a sample.
MOST_IN_AUDIT = 1_000  # Ids.


class ImportForm(forms.Form):
    """A file or pasted lines to import."""

    file = forms.FileField(required=False, allow_empty_file=True)
    text = forms.CharField(required=False, strip=False, widget=forms.Textarea({"rows": 7, "spellcheck": "false"}))
    group = forms.CharField(required=False, max_length=GROUP_LENGTH, strip=False)

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        if bool(given.get("file")) == bool(given.get("text")) and not self.errors:
            raise forms.ValidationError("Choose a file or paste lines, but not both.")
        return given

    @property
    def source(self) -> str:
        """Return the origin of the tasks, in words."""
        file = self.cleaned_data["file"]
        return f"the file {file.name}" if file else "pasted lines"

    def body(self) -> bytes:
        file = self.cleaned_data["file"]
        content: bytes = file.read() if file else self.cleaned_data["text"].encode()
        return content


@asks(Action.WORK)
def import_tasks(request: HttpRequest) -> HttpResponse:
    """Show the form, then a summary of the tasks; import them once that is confirmed."""
    if request.method != "POST":
        return _form(request, ImportForm(initial={"group": request.GET.get("name", "")}))
    form = ImportForm(request.POST, request.FILES)
    if not form.is_valid():
        return _form(request, form)
    body, group = form.body(), form.cleaned_data["group"]
    # Of the reviewed input: nothing else is imported.
    digest = hashlib.sha256(group.encode() + b"\n" + body).hexdigest()
    try:
        adds = importing.read(body, group)
    except InvalidInput as refused:
        return _form(request, form, problems=refused.fields)
    groups, confirmed = sorted({add.group for add in adds}), request.POST.get("digest")
    where = groups[0] if len(groups) == 1 else counted(len(groups), "group")
    if confirmed != digest:
        now_ms = Task.objects.now_ms()
        samples = [_sample(add, now_ms) for add in adds[:SAMPLES]]
        checked = {"adds": adds, "digest": digest, "where": where, "samples": samples}
        return _form(request, form, checked=checked, now_ms=now_ms, is_another=bool(confirmed))
    _import(request, form, adds, groups, where)
    return go_to(request, links.to("group", name=where) if len(groups) == 1 else resolve_url("tasks_app:overview"))


def _sample(add: Add, now_ms: int) -> tuple[NewTask, str, int]:
    """Return a task that an import would add, with the beginning of its data, and when it is available."""
    task = add.new_task()
    at_ms = task.timespec_ms if task.timespec_ms > 0 else now_ms - task.timespec_ms
    return task, payload.one_line(task.data[:LINE_BYTES], len(task.data)), at_ms


def _import(request: HttpRequest, form: ImportForm, adds: Sequence[Add], groups: Sequence[str], where: str) -> None:
    actor = actor_for(request)
    commit = importing.within_scope(Commit(owner=NOBODY, adds=tuple(add.imported() for add in adds), scope=actor.scope))
    answered = Task.objects.commit(owner=NOBODY, adds=commit.adds, scope=actor.scope)
    tasks = [task for task in answered if not task.duplicate]
    skipped = len(answered) - len(tasks)
    audit.record(
        actor,
        "import",
        group=groups[0] if len(groups) == 1 else "",
        selection=f"{len(tasks)} tasks from {form.source}",
        done=len(tasks),
        skipped=skipped,
        details={"groups": groups[:MOST_IN_AUDIT], "ids": [task.id for task in tasks[:MOST_IN_AUDIT]]},
    )
    taken = f" Skipped {number(skipped)}, because their keys are taken." if skipped else ""
    messages.success(request, f"Imported {counted(len(tasks), 'task')} into {where}.{taken}")


def _form(request: HttpRequest, form: ImportForm, **outcome: Any) -> HttpResponse:
    is_wrong = form.is_bound and not outcome.get("checked")
    return render(
        request,
        "tasks_app/_import_outcome.html" if is_partial(request) else "tasks_app/import.html",
        {"form": form, "is_whole_page": not is_partial(request), **outcome},
        status=422 if is_wrong else 200,
    )
