"""The pages of jobs: the list, one job, found by any id that its task has had, and its requeueing and deletion."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render, resolve_url

from taskstore.errors import InvalidInput
from taskstore.types.job_record import (
    DEFAULT_QUEUE,
    FUNCTION_LABEL,
    Attempt,
    How,
    JobOptions,
    JobRecord,
    JobStatus,
    NotAJob,
    queue_of,
    why_no_queue,
)
from taskstore.types.jobs import Job
from taskstore.types.scalars import INT64_MIN, LABEL_LENGTH, MOST_PRIORITY, REASON_LENGTH, whole
from taskstore.units import counted

from ..access import audit
from ..access.policy import Action, may
from ..alerts.diagnosis import of_task
from ..core.actors import Actor
from ..core.operations import EVERY_GROUP, GroupScope
from ..database import atomic
from ..forms import Labels
from ..jobs import queues as job_queues
from ..jobs.queues import Page, Wanted
from ..models import Task
from ..reading import history
from ..reading.clients import seen
from ..reading.counts import group_counts
from ..reading.history import chain_of
from ..reading.pages import Cursor
from ..reading.search.grammar import label_term, quoted
from . import json_tree, parameters, payload
from .fields import Json, TellingForm, WholeNumber
from .json_tree import Line, NoTree
from .pages import (
    actor_for,
    ask_first,
    asks,
    done,
    existing,
    fill_in,
    is_partial,
    posted,
    reads,
    user_of,
    without_empty_fields,
)
from .tasks import Difference, lines_of_difference

FIELDS = ("queue", "status", "function", "label", "worker", "since")
SPANS_MS = {"1h": 3_600_000, "24h": 86_400_000, "7d": 7 * 86_400_000}
MOST_TIMED = 2_000  # Finished jobs that the times of functions are computed from, the latest.
LONGEST_PARAMETERS = 200  # Characters in a list.
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
        "parameters": _parameters_of(job),
        # A list does not read a large record.
        "tried": len(attempts) if job.is_whole else task.claims,
        "attempts": [(each, *_end_of(each), _length_of(each, now_ms)) for each in attempts],
    }


def _parameters_of(job: Job) -> str:
    """Return the parameters of a job as they are written in a call."""
    named = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in job.kwargs.items()]
    return ", ".join([json.dumps(value, ensure_ascii=False) for value in job.args] + named)[:LONGEST_PARAMETERS]


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
        found = job_queues.list_jobs(_wanted(request.GET, asked), after=Cursor.read(request.GET.get("after")))
    except InvalidInput as refused:
        return _list(request, asked, None, refused)
    return _list(request, asked, found)


def _wanted(query: QueryDict, asked: Mapping[str, str]) -> Wanted:
    """Return the filter. Raises InvalidInput about its fields."""
    if asked["since"] and asked["since"] not in SPANS_MS:
        raise InvalidInput({"since": [f"must be one of {', '.join(SPANS_MS)}"]})
    return Wanted(
        queue=asked["queue"],
        status=JobStatus(asked["status"]) if asked["status"] else None,
        function=asked["function"],
        label=parameters.label_of(query),
        owner=_owner_named(asked["worker"]) if asked["worker"] else None,
        since_ms=Task.objects.now_ms() - SPANS_MS[asked["since"]] if asked["since"] else 0,
    )


def _owner_named(worker: str) -> int:
    """Return the client with this id or name."""
    number = whole(worker, INT64_MIN)
    if number is not None:
        return number
    for each in seen():
        if each.client.name == worker:
            return each.client.id
    raise InvalidInput({"worker": ["must be a client id, or the name of a worker with a heartbeat within a day"]})


# What a status is in terms of a search, in the waiting group of a queue and in all groups of jobs.
TERMS = {
    JobStatus.SCHEDULED: "available:>now -state:claimed -state:finished -state:failed",
    JobStatus.PENDING: "available:<now -state:finished -state:failed",
    JobStatus.STARTED: "state:claimed",
    JobStatus.FAILED: "state:failed",
}


def _search_of(wanted: Wanted, asked: Mapping[str, str]) -> str:
    """Return the search for the listed jobs, which a bulk operation takes; empty if there is none."""
    status, queue = wanted.status, wanted.queue
    if (queue and status is None) or (not queue and status not in (None, *TERMS)):
        return ""  # No prefix means the groups of one queue, nor what has succeeded in all queues.
    terms = [f"group:{quoted(job_queues.groups_with(status, queue)[0])}" if queue else "group:jobs/*"]
    terms += [TERMS[status]] if status in TERMS else []
    terms.append(label_term(FUNCTION_LABEL, wanted.function or None))  # Other tasks may be in these groups, too.
    terms += [label_term(*wanted.label)] if wanted.label else []
    terms += [f"owner:{wanted.owner}"] if wanted.owner is not None else []
    terms += [f"available:>now-{asked['since']}"] if asked["since"] else []
    return " ".join(terms)


@reads(Action.SEE)
def times(request: HttpRequest) -> HttpResponse:
    """Show how long the jobs of each function took, from the latest ones that have succeeded or failed."""
    found: dict[str, list[int]] = {}
    ended, failed = Counter[str](), Counter[str]()
    looked_at = 0
    for status in (JobStatus.SUCCEEDED, JobStatus.FAILED):
        page = job_queues.list_jobs(Wanted(status=status), limit=MOST_TIMED // 2)
        looked_at += len(page.jobs)
        for each in page.jobs:
            lengths = found.setdefault(each.function, [])
            lengths += [ms for attempt in each.attempts[-1:] if (ms := _length_of(attempt, 0)) is not None]
            ended[each.function] += 1
            failed[each.function] += status is JobStatus.FAILED
    functions = [
        (name, ended[name], failed[name], _percentile(lengths, 50), _percentile(lengths, 95), sum(lengths))
        for name, lengths in found.items()
    ]
    context = {
        "functions": sorted(functions, key=lambda each: (-each[-1], each[0])),
        "looked_at": looked_at,
        "now_ms": Task.objects.now_ms(),
    }
    return render(request, "tasks_app/job_times.html", context)


def _percentile(lengths: Sequence[int], percent: int) -> int | None:
    return sorted(lengths)[(len(lengths) - 1) * percent // 100] if lengths else None


class JobForm(TellingForm):
    """A job to enqueue."""

    places: Mapping[str, str] = {"args": "arguments", "kwargs": "named_arguments"}

    function = forms.CharField(max_length=LABEL_LENGTH)
    arguments = Json(list, "must be a JSON list, such as [1, true]", empty="[]")
    named_arguments = Json(dict, 'must be a JSON object, such as {"to": "kim"}', empty="{}")
    queue = forms.CharField(required=False)
    labels = Labels(required=False)
    priority = WholeNumber(required=False, least=-MOST_PRIORITY, most=MOST_PRIORITY)
    delay_s = WholeNumber(required=False, least=0, most=366 * 86_400)


@asks(Action.WORK)
def add(request: HttpRequest) -> HttpResponse:
    """Show the form, with the parameters of the last job of `function`, if somebody may see them; enqueue the job."""
    function = parameters.text_of(request.GET, "function", LABEL_LENGTH)
    last = job_queues.list_jobs(Wanted(function=function), limit=1).jobs if function else ()
    initial: dict[str, Any] = {"function": function, "queue": DEFAULT_QUEUE, "priority": "0", "delay_s": "0"}
    for each in last:
        initial["queue"] = each.queue
        if may(user_of(request), Action.SEE_PAYLOADS, f"jobs/{each.queue}"):
            initial |= {"arguments": in_lines([*each.args]), "named_arguments": in_lines({**each.kwargs})}
    form = JobForm(posted(request), initial=initial)

    def do(actor: Actor) -> HttpResponse:
        given = form.cleaned_data
        queue = given["queue"] or DEFAULT_QUEUE
        record = JobRecord(
            function=given["function"], args=given["arguments"], kwargs=given["named_arguments"], options=JobOptions()
        )
        at_ms, priority = -1_000 * (given["delay_s"] or 0), given["priority"] or 0
        with atomic():
            task = job_queues.enqueue(record, queue=queue, at_ms=at_ms, priority=priority, labels=given["labels"])
            details = {"ids": [task.id]}
            audit.record(actor, "add", group=task.group, selection=f"job {task.id}", done=1, details=details)
        return done(request, f"Enqueued job {task.id}.", resolve_url("tasks_app:job", task.id))

    context = {"functions": _functions(), "queues": sorted(_counts()), "repeats": bool(last)}
    return fill_in(request, form, "job_form", context, do)


def _functions() -> list[str]:
    """Return the functions of some recent jobs."""
    return sorted({each.function for each in job_queues.list_jobs(Wanted()).jobs})


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
    counts, user = _counts(), user_of(request)
    context = {
        "q": _search_of(_wanted(request.GET, asked), asked) if found else "",
        "may_operate": may(user, Action.OPERATE),
        "may_add": may(user, Action.WORK),
        "spans": list(SPANS_MS),
        "workers": sorted({each.client.name for each in seen() if each.client.name}),
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
        "sees_payloads": may(user, Action.SEE_PAYLOADS),
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
    """Return each status with its look and count. The count is None when the list is filtered by more."""
    meant = [numbers for queue, numbers in by_queue.items() if asked["queue"] in ("", queue)]
    sums = {status: sum(numbers[status] for numbers in meant) for status in JobStatus}
    tabs = [(None, "", sum(sums.values())), *((status, LOOKS[status], sums[status]) for status in JobStatus)]
    is_narrower = any(asked[name] for name in ("function", "label", "worker", "since"))
    return [(status, look, None if is_narrower else count) for status, look, count in tabs]


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
