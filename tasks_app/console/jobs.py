"""The pages of jobs: the list, one job, found by any id that its task has had, and its requeueing and deletion."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url

from taskstore.errors import InvalidInput
from taskstore.types.job_record import Attempt, How, JobStatus, NotAJob, queue_of, why_no_queue
from taskstore.types.jobs import Job
from taskstore.types.scalars import REASON_LENGTH
from taskstore.units import counted

from ..access.policy import Action, may
from ..alerts.diagnosis import of_task
from ..core.actors import Actor
from ..core.operations import EVERY_GROUP, GroupScope
from ..jobs import queues as job_queues
from ..jobs.queues import Page, Wanted
from ..models import Task
from ..reading import history
from ..reading.clients import seen
from ..reading.counts import group_counts
from ..reading.history import chain_of
from ..reading.pages import Cursor
from . import json_tree, parameters, payload
from .fields import Json
from .json_tree import Line, NoTree
from .pages import actor_for, ask_first, asks, done, existing, is_partial, reads, user_of, without_empty_fields
from .tasks import Difference, lines_of_difference

FIELDS = ("queue", "status", "function")
OF_JOBS = GroupScope(("jobs/*",))

# The task state whose icon and colour a status uses.
LOOKS = {
    JobStatus.SCHEDULED: "scheduled",
    JobStatus.PENDING: "ready",
    JobStatus.STARTED: "claimed",
    JobStatus.SUCCEEDED: "finished",
    JobStatus.FAILED: "failed",
    JobStatus.CANCELLED: "paused",
}
ENDS = {
    How.SUCCEEDED: ("over", "Succeeded"),
    How.FAILED: ("failed", "Failed"),
    How.DIED: ("failed", "Process died"),
    How.TIMED_OUT: ("expired", "Timed out"),
    How.LOST: ("expired", "Worker lost"),
    How.GIVEN_BACK: ("quiet", "Given back"),
    How.SNOOZED: ("quiet", "Snoozed"),
    How.NOT_STARTED: ("quiet", "Not started"),
    How.AWAY: ("quiet", "Lost the store"),
    How.CANCELLED: ("quiet", "Cancelled"),
}
# The meaning of the time that a list shows.
TIMES = {
    JobStatus.SCHEDULED: "due",
    JobStatus.PENDING: "waiting since",
    JobStatus.STARTED: "started",
    JobStatus.SUCCEEDED: "ended",
    JobStatus.FAILED: "ended",
    JobStatus.CANCELLED: "ended",
}


def shown_of(job: Job, task: Task, now_ms: int) -> dict[str, Any]:
    """Return what a page says of a job."""
    attempts = [*job.attempts]
    if job.attempt and job.attempt not in attempts:
        attempts.append(job.attempt)
    at_ms = job.updated
    if job.status in (JobStatus.SCHEDULED, JobStatus.PENDING):
        at_ms = job.available_at_ms
    elif job.status is JobStatus.STARTED:
        at_ms = job.started or task.leased_since_ms
    return {
        "job": job,
        "task": task,
        "look": LOOKS[job.status],
        "when": TIMES[job.status],
        "at_ms": at_ms,
        "ran_ms": _length_of(job.attempt, now_ms),
        # A list does not read a large record.
        "tried": len(attempts) if job.is_whole else task.claims,
        "attempts": [(each, *_end_of(each), _length_of(each, now_ms)) for each in attempts],
    }


def _end_of(attempt: Attempt) -> tuple[str, str]:
    if attempt.lacked_function:
        times = f" {counted(attempt.times, 'time')}, last" if attempt.times > 1 else ""
        return "quiet", f"Left to other workers{times}"
    return ENDS[attempt.how] if attempt.how else ("claimed", "Running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A JSON value: the lines of its tree, or its text when it is too large for a tree."""

    lines: Sequence[Line] = ()
    text: str = ""

    @classmethod
    def of(cls, value: Any) -> Value:
        text = json.dumps(value, ensure_ascii=False)
        try:
            if len(text) <= json_tree.MOST_BYTES:
                return cls(lines=json_tree.lines_of_json(text))
        except NoTree:
            pass
        return cls(text=text[: payload.TEXT_BYTES])


@reads(Action.SEE, from_replica=True)
def jobs(request: HttpRequest) -> HttpResponse:
    """List the jobs that match the query, newest first."""
    if "" in request.GET.dict().values():
        return redirect(without_empty_fields(request))
    asked = {name: parameters.text_of(request.GET, name, parameters.LONGEST_FILTER) for name in FIELDS}
    try:
        if asked["queue"] and (why := why_no_queue(asked["queue"])):
            raise InvalidInput({"queue": [why]})
        if asked["status"] and asked["status"] not in list(JobStatus):
            raise InvalidInput({"status": [f"must be one of {', '.join(JobStatus)}"]})
        status = JobStatus(asked["status"]) if asked["status"] else None
        found = job_queues.list_jobs(
            Wanted(queue=asked["queue"], status=status, function=asked["function"]),
            after=Cursor.read(request.GET.get("after")),
        )
    except InvalidInput as refused:
        return _list(request, asked, None, refused)
    return _list(request, asked, found)


@reads(Action.SEE)
def job(request: HttpRequest, job_id: int) -> HttpResponse:
    """Show a job; an open page polls it as a partial until it is finished."""
    task = job_queues.task_of(job_id)
    if task is None:
        chain = chain_of(job_id, OF_JOBS)
        if chain and chain.origin != job_id and job_queues.find(chain.origin):
            return redirect("tasks_app:job", chain.origin)
        return _no_job(request, job_id, history.fate_of(job_id, EVERY_GROUP) or "")
    try:
        found = job_queues.job_of(task)
    except NotAJob as problem:
        return _no_job(request, job_id, str(problem))
    user = user_of(request)
    group = f"jobs/{found.queue}"
    return render(
        request,
        "tasks_app/_job.html" if is_partial(request) else "tasks_app/job.html",
        {
            "shown": shown_of(found, task, Task.objects.now_ms()),
            "now_ms": Task.objects.now_ms(),
            "diagnosis": of_task(task, Task.objects.now_ms(), seen(), bytes(task.data)),
            "content": _content_of(found) if may(user, Action.SEE_PAYLOADS, group) else None,
            "may_operate": may(user, Action.OPERATE, group),
        },
    )


def _list(
    request: HttpRequest, asked: Mapping[str, str], found: Page | None, refused: InvalidInput | None = None
) -> HttpResponse:
    now_ms = found.at_ms if found else Task.objects.now_ms()
    shown = [shown_of(each, found.tasks[each.task], now_ms) for each in found.jobs] if found else []
    counts = _counts()
    context = {
        "asked": asked,
        "jobs": shown,
        "after": found.after if found else None,
        "is_first": "after" not in request.GET,
        "is_filtered": any(asked.values()),
        "tabs": _tabs(counts, asked),
        "queues": sorted(counts),
        "functions": sorted({each.function for each in found.jobs} if found else ()),
        "problems": refused.fields if refused else {},
        "now_ms": now_ms,
        "sees_payloads": may(user_of(request), Action.SEE_PAYLOADS),
    }
    return render(request, "tasks_app/jobs.html", context, status=400 if refused else 200)


def _counts() -> dict[str, dict[JobStatus, int]]:
    """Return the number of jobs by queue and status."""
    by_queue: dict[str, dict[JobStatus, int]] = {}
    for group, counts in group_counts(OF_JOBS).items():
        queue = queue_of(group)
        if queue is None:
            continue
        numbers = by_queue.setdefault(queue, dict.fromkeys(JobStatus, 0))
        end = group.removeprefix(f"jobs/{queue}").removeprefix("/")
        if end:
            numbers[JobStatus(end)] += counts.tasks
        else:
            numbers[JobStatus.SCHEDULED] += counts.later
            numbers[JobStatus.STARTED] += counts.claimed
            numbers[JobStatus.PENDING] += counts.available + counts.expired
    return by_queue


def _tabs(
    by_queue: Mapping[str, Mapping[JobStatus, int]], asked: Mapping[str, str]
) -> list[tuple[JobStatus | None, str, int | None]]:
    """Return each status with its look and count. The count is None when the list is filtered by function."""
    meant = [numbers for queue, numbers in by_queue.items() if asked["queue"] in ("", queue)]
    sums = {status: sum(numbers[status] for numbers in meant) for status in JobStatus}
    tabs = [(None, "", sum(sums.values())), *((status, LOOKS[status], sums[status]) for status in JobStatus)]
    return [(status, look, None if asked["function"] else count) for status, look, count in tabs]


def _content_of(found: Job) -> dict[str, Any]:
    """Return the parts of a job that need the right to see payloads."""
    return {
        "args": Value.of(list(found.args)) if found.args else None,
        "kwargs": Value.of(dict(found.kwargs)) if found.kwargs else None,
        "result": Value.of(found.result),
        "error": found.error,
        "traceback": _text(found.error.traceback) if found.error else "",
        "log": _text(found.log),
    }


def _text(text: str) -> str:
    """Make control characters visible."""
    return payload.text_of(text.encode(), is_whole=True) or ""


def _length_of(attempt: Attempt | None, now_ms: int) -> int | None:
    if attempt is None or not attempt.started or attempt.lacked_function:
        return None
    end_ms = attempt.ended or (now_ms if attempt.how is None else 0)
    return max(end_ms - attempt.started, 0) if end_ms else None


def _no_job(request: HttpRequest, job_id: int, why: str) -> HttpResponse:
    context = {"job_id": job_id, "why": why, "is_known": chain_of(job_id) is not None}
    return render(request, "tasks_app/no_job.html", context, status=404)


LARGE = forms.Textarea({"rows": 5, "spellcheck": "false"})


class RequeueForm(forms.Form):
    """The parameters of a job as JSON, and the reason to run it again."""

    args = Json(list, "must be a JSON list, such as [1, 2]", widget=LARGE)
    kwargs = Json(dict, 'must be a JSON object, such as {"name": 1}', widget=LARGE)
    reason = forms.CharField(required=False, max_length=REASON_LENGTH)

    def __init__(self, asked: Any, job: Job, *, may_see_data: bool) -> None:
        super().__init__(asked, initial={"args": in_lines([*job.args]), "kwargs": in_lines({**job.kwargs})})
        if not may_see_data:
            del self.fields["args"], self.fields["kwargs"]


@asks(Action.OPERATE)
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
            request, "tasks_app/job_requeue.html", context, status=422 if asked and "again" not in asked else 200
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
        return render(request, "tasks_app/job_review.html", context | {"differences": differences})
    job_queues.requeue(
        job,
        actor_for(request),
        args=given["args"] if "args" in changed else None,
        kwargs=given["kwargs"] if "kwargs" in changed else None,
    )
    messages.success(request, f"Requeued job {job.id}.")
    return redirect("tasks_app:job", job.id)


@asks(Action.OPERATE)
def delete(request: HttpRequest, job_id: int) -> HttpResponse:
    """Ask for a reason; delete the job."""
    job = _named(job_id)
    job_queues.refuse_unfinished(job, "deleted")

    def do(actor: Actor) -> HttpResponse:
        job_queues.delete(job, actor)
        return done(request, f"Deleted job {job_id}.", resolve_url("tasks_app:jobs"))

    return ask_first(request, "job_delete", f"Delete job {job_id}", {"job": job}, do)


def in_lines(value: Any) -> str:
    """Format a value for editing."""
    return json.dumps(value, ensure_ascii=False, indent=1)


def _named(job_id: int) -> Job:
    try:
        return existing(job_queues.find(job_id))
    except NotAJob:
        raise Http404 from None
