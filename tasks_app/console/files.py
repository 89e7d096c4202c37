"""Export and import in the console."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render, resolve_url
from django.views.decorators.http import require_http_methods, require_safe

from taskstore.errors import InvalidInput
from taskstore.types.requests import Add
from taskstore.types.scalars import GROUP_LENGTH
from taskstore.units import counted, number

from ..access import audit
from ..access.policy import Action, may
from ..core.operations import Commit
from ..forms import NOBODY
from ..models import Task
from ..reading import importing
from ..reading.exporting import Export, download
from . import links, parameters, payload
from .pages import actor_for, go_to, is_partial, page, user_of
from .parameters import terms_of


@require_safe
@page(Action.SEE)
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


class Sample(NamedTuple):
    """A task that an import would add, as a row of a list."""

    group: str
    data: str
    error: str
    priority: int
    available_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The tasks that an import would add."""

    adds: Sequence[Add]
    digest: str  # Of the reviewed input: nothing else is imported.
    at_ms: int

    @property
    def groups(self) -> list[str]:
        return sorted({add.group for add in self.adds})

    @property
    def where(self) -> str:
        """Return the name of the only group, or the number of groups."""
        return self.groups[0] if len(self.groups) == 1 else counted(len(self.groups), "group")

    @property
    def samples(self) -> Iterator[Sample]:
        for add in self.adds[:SAMPLES]:
            task = add.new_task()
            line = payload.one_line(task.data[:LINE_BYTES], len(task.data))
            at_ms = task.timespec_ms if task.timespec_ms > 0 else self.at_ms - task.timespec_ms
            yield Sample(task.group, line, task.error, task.priority, at_ms)


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.WORK)
def import_tasks(request: HttpRequest) -> HttpResponse:
    """Show the form, then a summary of the tasks; import them once that is confirmed."""
    if request.method != "POST":
        return _form(request, ImportForm(initial={"group": request.GET.get("name", "")}))
    form = ImportForm(request.POST, request.FILES)
    checked = None
    if form.is_valid():
        body, group = form.body(), form.cleaned_data["group"]
        digest = hashlib.sha256(group.encode() + b"\n" + body).hexdigest()
        try:
            checked = Checked(adds=importing.read(body, group), digest=digest, at_ms=Task.objects.now_ms())
        except InvalidInput as refused:
            return _form(request, form, problems=refused.fields)
    confirmed = request.POST.get("digest")
    if checked is None or confirmed != checked.digest:
        return _form(request, form, checked=checked, is_another=bool(confirmed))
    _import(request, form, checked)
    one_group = len(checked.groups) == 1
    return go_to(request, links.to("group", name=checked.groups[0]) if one_group else resolve_url("tasks_app:overview"))


def _import(request: HttpRequest, form: ImportForm, checked: Checked) -> None:
    actor = actor_for(request)
    commit = importing.within_scope(
        Commit(owner=NOBODY, adds=tuple(add.imported() for add in checked.adds), scope=actor.scope)
    )
    answered = Task.objects.commit(owner=NOBODY, adds=commit.adds, scope=actor.scope)
    tasks = [task for task in answered if not task.duplicate]
    skipped = len(answered) - len(tasks)
    audit.record(
        actor,
        "import",
        group=checked.groups[0] if len(checked.groups) == 1 else "",
        selection=f"{len(tasks)} tasks from {form.source}",
        done=len(tasks),
        skipped=skipped,
        details={"groups": checked.groups[:MOST_IN_AUDIT], "ids": [task.id for task in tasks[:MOST_IN_AUDIT]]},
    )
    taken = f" Skipped {number(skipped)}, because their keys are taken." if skipped else ""
    messages.success(request, f"Imported {counted(len(tasks), 'task')} into {checked.where}.{taken}")


def _form(request: HttpRequest, form: ImportForm, **outcome: Any) -> HttpResponse:
    is_wrong = form.is_bound and not outcome.get("checked")
    return render(
        request,
        "tasks_app/_import_outcome.html" if is_partial(request) else "tasks_app/import.html",
        {"form": form, "is_whole_page": not is_partial(request), **outcome},
        status=422 if is_wrong else 200,
    )
