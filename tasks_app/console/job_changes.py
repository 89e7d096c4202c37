"""The pages that requeue a finished job, with the same or other parameters, or delete it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.views.decorators.http import require_http_methods

from taskstore.types.checks import why_no_json
from taskstore.types.job_record import NotAJob
from taskstore.types.jobs import Job
from taskstore.types.scalars import REASON_LENGTH

from ..access.policy import Action, may
from ..jobs import queues as job_queues
from .editing import Difference, lines_of_difference
from .pages import actor_for, go_to, is_partial, page, user_of


class RequeueForm(forms.Form):
    """The parameters of a job as JSON, and the reason to run it again."""

    args = forms.CharField(strip=False, widget=forms.Textarea({"rows": 5, "spellcheck": "false"}))
    kwargs = forms.CharField(strip=False, widget=forms.Textarea({"rows": 5, "spellcheck": "false"}))
    reason = forms.CharField(required=False, max_length=REASON_LENGTH)

    def __init__(self, asked: Any, job: Job, *, may_see_data: bool) -> None:
        super().__init__(asked, initial={"args": in_lines([*job.args]), "kwargs": in_lines({**job.kwargs})})
        if not may_see_data:
            del self.fields["args"], self.fields["kwargs"]

    def clean_args(self) -> Any:
        return _json_in(self.cleaned_data["args"], list, "must be a JSON list, such as [1, 2]")

    def clean_kwargs(self) -> Any:
        return _json_in(self.cleaned_data["kwargs"], dict, 'must be a JSON object, such as {"name": 1}')


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.OPERATE)
def requeue(request: HttpRequest, job_id: int) -> HttpResponse:
    """Show the form, then the differences; requeue the job once they are confirmed."""
    job = _named(job_id)
    job_queues.refuse_unfinished(job, "requeued")
    asked = request.POST if request.method == "POST" else None
    may_see_data = may(user_of(request), Action.SEE_PAYLOADS, f"jobs/{job.queue}")
    form = RequeueForm(asked, job, may_see_data=may_see_data)
    context = {"job": job, "form": form, "shows_data": may_see_data}
    if asked is None or "again" in asked or not form.is_valid():
        return render(
            request, "console/job_requeue.html", context, status=422 if asked and "again" not in asked else 200
        )
    given = form.cleaned_data
    old: Mapping[str, Sequence[Any] | Mapping[str, Any]] = {"args": [*job.args], "kwargs": {**job.kwargs}}
    # Unchanged parameters are not written again: the audit log says whether somebody edited them.
    changed = {name for name in old if name in given and in_lines(given[name]) != in_lines(old[name])}
    if "confirmed" not in asked:
        differences = [
            Difference(name=name, lines=lines_of_difference(in_lines(before), in_lines(given[name])))
            for name, before in old.items()
            if name in changed
        ]
        return render(request, "console/job_review.html", context | {"differences": differences})
    job_queues.requeue(
        job,
        actor_for(request),
        args=given["args"] if "args" in changed else None,
        kwargs=given["kwargs"] if "kwargs" in changed else None,
    )
    messages.success(request, f"Requeued job {job.id}.")
    return redirect("console:job", job.id)


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.OPERATE)
def delete(request: HttpRequest, job_id: int) -> HttpResponse:
    """Ask for a reason; delete the job."""
    job = _named(job_id)
    job_queues.refuse_unfinished(job, "deleted")
    if request.method != "POST":
        return render(
            request, "console/_job_delete.html" if is_partial(request) else "console/job_delete.html", {"job": job}
        )
    job_queues.delete(job, actor_for(request))
    messages.success(request, f"Deleted job {job_id}.")
    return go_to(request, resolve_url("console:jobs"))


def in_lines(value: Any) -> str:
    """Format a value for editing."""
    return json.dumps(value, ensure_ascii=False, indent=1)


def _json_in(text: str, kind: type[Any], right: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise forms.ValidationError(f"{right}, but can't be parsed: {problem}") from None
    if type(value) is not kind:
        raise forms.ValidationError(right)
    if why := why_no_json(value):
        raise forms.ValidationError(why)
    return value


def _named(job_id: int) -> Job:
    try:
        job = job_queues.find(job_id)
    except NotAJob:
        job = None
    if job is None:
        raise Http404
    return job
