"""Jobs: the list of them, and the page of one, found by any id that its task ever had."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from taskstore.errors import InvalidInput
from taskstore.types.job_record import Attempt, How, JobStatus, NotAJob, queue_of, why_no_queue
from taskstore.types.jobs import Job

from ..access.policy import Action, may
from ..core.operations import EVERY_GROUP, GroupScope
from ..jobs import queues as job_queues
from ..jobs.queues import Page, Wanted
from ..models import Task
from ..reading import history
from ..reading.counts import group_counts
from ..reading.history import chain_of
from ..reading.listing import Cursor
from . import json_tree, payload
from . import parameters as reading
from .json_tree import Line, NoTree
from .pages import is_partial, page, user_of
from .replica import from_replica
from .snippets import command_to_enqueue

FIELDS = ("queue", "status", "function")
OF_JOBS = GroupScope(("jobs/*",))

# The state of a task whose glyph and colour a status has.
LOOKS = {
    JobStatus.SCHEDULED: "scheduled",
    JobStatus.PENDING: "ready",
    JobStatus.STARTED: "claimed",
    JobStatus.SUCCEEDED: "finished",
    JobStatus.FAILED: "failed",
}
ENDS = {
    How.SUCCEEDED: ("over", "Succeeded"),
    How.FAILED: ("failed", "Failed"),
    How.DIED: ("failed", "Process died"),
    How.TIMED_OUT: ("expired", "Timed out"),
    How.LOST: ("expired", "Worker lost"),
    How.GIVEN_BACK: ("quiet", "Given back"),
}
# What its time means, in a list.
TIMES = {
    JobStatus.SCHEDULED: "due",
    JobStatus.PENDING: "waiting since",
    JobStatus.STARTED: "started",
    JobStatus.SUCCEEDED: "ended",
    JobStatus.FAILED: "ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job, in the words of a page."""

    job: Job
    task: Task
    now_ms: int

    @property
    def look(self) -> str:
        return LOOKS[self.job.status]

    @property
    def when(self) -> str:
        return TIMES[self.job.status]

    @property
    def at_ms(self) -> int:
        """The time that `when` is about."""
        match self.job.status:
            case JobStatus.SCHEDULED | JobStatus.PENDING:
                return self.job.available_at_ms
            case JobStatus.STARTED:
                return self.job.started or self.task.leased_since_ms
        return self.job.updated

    @property
    def ran_ms(self) -> int | None:
        """How long the last attempt took, or takes; None when that is not known."""
        return _length_of(self.job.attempt, self.now_ms)

    @property
    def tried(self) -> int:
        """How often it was tried. Of a large record, which a list does not read: how often it was claimed."""
        return len(self.attempts) if self.job.is_whole else self.task.claims

    @property
    def attempts(self) -> list[Try]:
        """The recorded ones, and the one under way."""
        tried = [*self.job.attempts]
        if self.job.attempt and self.job.attempt not in tried:
            tried.append(self.job.attempt)
        return [Try.of(attempt, self.now_ms) for attempt in tried]


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """An attempt, in the words of a page."""

    attempt: Attempt
    look: str
    what: str
    ran_ms: int | None

    @classmethod
    def of(cls, attempt: Attempt, now_ms: int) -> Try:
        look, what = ENDS[attempt.how] if attempt.how else ("claimed", "Running")
        return cls(attempt=attempt, look=look, what=what, ran_ms=_length_of(attempt, now_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of JSON: the lines of its tree, or its text where that is too large for one."""

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


@require_safe
@page(Action.SEE)
@from_replica
def jobs(request: HttpRequest) -> HttpResponse:
    """Those that the address asks for, the latest first."""
    if "" in request.GET.dict().values():
        return redirect(_without_empty(request))
    asked = {name: reading.text_of(request.GET, name, reading.LONGEST_FILTER) for name in FIELDS}
    try:
        after = request.GET.get("after")
        found = job_queues.list_jobs(_wanted(asked), after=Cursor.read(after, "after") if after else None)
    except InvalidInput as refused:
        return _list(request, asked, None, refused)
    return _list(request, asked, found)


@require_safe
@page(Action.SEE)
def job(request: HttpRequest, job_id: int) -> HttpResponse:
    """One of them; as a part of its page until it is finished."""
    task = job_queues.task_of(job_id)
    if task is None:
        return _elsewhere(request, job_id)
    try:
        found = job_queues.job_of(task)
    except NotAJob as problem:
        return _no_job(request, job_id, str(problem))
    user = user_of(request)
    group = f"jobs/{found.queue}"
    return render(
        request,
        "console/_job.html" if is_partial(request) else "console/job.html",
        {
            "shown": JobView(job=found, task=task, now_ms=Task.objects.now_ms()),
            "now_ms": Task.objects.now_ms(),
            "content": _content_of(found) if may(user, Action.SEE_PAYLOADS, group) else None,
            "may_operate": may(user, Action.OPERATE, group),
        },
    )


def _wanted(asked: Mapping[str, str]) -> Wanted:
    if asked["queue"] and (why := why_no_queue(asked["queue"])):
        raise InvalidInput({"queue": [why]})
    if asked["status"] and asked["status"] not in list(JobStatus):
        raise InvalidInput({"status": [f"must be one of {', '.join(JobStatus)}"]})
    status = JobStatus(asked["status"]) if asked["status"] else None
    return Wanted(queue=asked["queue"], status=status, function=asked["function"])


def _list(
    request: HttpRequest, asked: Mapping[str, str], found: Page | None, refused: InvalidInput | None = None
) -> HttpResponse:
    now_ms = found.at_ms if found else Task.objects.now_ms()
    shown = [JobView(job=each, task=found.tasks[each.task], now_ms=now_ms) for each in found.jobs] if found else []
    counts = _counts()
    context = {
        "asked": asked,
        "jobs": shown,
        "after": found.after if found else None,
        "is_first": "after" not in request.GET,
        "is_filtered": any(asked.values()),
        "tabs": _tabs(counts, asked),
        "queues": sorted(counts),
        "functions": sorted({each.job.function for each in shown}),
        "problems": refused.fields if refused else {},
        "now_ms": now_ms,
        "command": command_to_enqueue(request),
    }
    return render(request, "console/jobs.html", context, status=400 if refused else 200)


def _counts() -> dict[str, dict[JobStatus, int]]:
    """How many jobs of each status there are, by queue."""
    by_queue: dict[str, dict[JobStatus, int]] = {}
    for group, counts in group_counts(OF_JOBS).items():
        queue = queue_of(group)
        if queue is None:
            continue
        numbers = by_queue.setdefault(queue, dict.fromkeys(JobStatus, 0))
        end = group.removeprefix(f"jobs/{queue}").removeprefix("/")
        if end:
            numbers[JobStatus(end)] += counts.total
        else:
            numbers[JobStatus.SCHEDULED] += counts.scheduled
            numbers[JobStatus.STARTED] += counts.claimed
            numbers[JobStatus.PENDING] += counts.ready + counts.expired
    return by_queue


def _tabs(
    by_queue: Mapping[str, Mapping[JobStatus, int]], asked: Mapping[str, str]
) -> list[tuple[JobStatus | None, str, int | None]]:
    """Each status with its look and how many there are; None: not known, as nobody counts by function."""
    meant = [numbers for queue, numbers in by_queue.items() if asked["queue"] in ("", queue)]
    sums = {status: sum(numbers[status] for numbers in meant) for status in JobStatus}
    tabs = [(None, "", sum(sums.values())), *((status, LOOKS[status], sums[status]) for status in JobStatus)]
    return [(status, look, None if asked["function"] else count) for status, look, count in tabs]


def _content_of(found: Job) -> dict[str, Any]:
    """What only those see who may see payloads."""
    return {
        "args": Value.of(list(found.args)) if found.args else None,
        "kwargs": Value.of(dict(found.kwargs)) if found.kwargs else None,
        "result": Value.of(found.result),
        "error": found.error,
        "traceback": _text(found.error.traceback) if found.error else "",
        "log": _text(found.log),
    }


def _text(text: str) -> str:
    """With its control characters visible."""
    return payload.text_of(text.encode(), is_whole=True) or ""


def _length_of(attempt: Attempt | None, now_ms: int) -> int | None:
    if attempt is None or not attempt.started:
        return None
    end_ms = attempt.ended or (now_ms if attempt.how is None else 0)
    return max(end_ms - attempt.started, 0) if end_ms else None


def _elsewhere(request: HttpRequest, job_id: int) -> HttpResponse:
    """A later id of its task leads to the job."""
    chain = chain_of(job_id, OF_JOBS)
    if chain and chain.origin != job_id and job_queues.find(chain.origin):
        return redirect("console:job", chain.origin)
    return _no_job(request, job_id, history.fate_of(job_id, EVERY_GROUP) or "")


def _no_job(request: HttpRequest, job_id: int, why: str) -> HttpResponse:
    context = {"job_id": job_id, "why": why, "is_known": chain_of(job_id) is not None}
    return render(request, "console/no_job.html", context, status=404)


def _without_empty(request: HttpRequest) -> str:
    """The address of the page without what a form sends for fields in which nobody wrote."""
    query = request.GET.copy()
    for name in [name for name, value in request.GET.items() if not value]:
        del query[name]
    return f"{request.path}?{query.urlencode()}" if query else request.path
