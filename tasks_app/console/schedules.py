"""The pages of schedules: the list, the form with its next due times, and the changes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any
from zoneinfo import available_timezones

import msgspec
from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url

from taskstore.errors import InvalidInput, refuse
from taskstore.types.job_record import DEFAULT_QUEUE
from taskstore.types.scalars import GROUP_LENGTH, KEY_LENGTH, LABEL_LENGTH, MOST_PRIORITY, REASON_LENGTH
from taskstore.types.schedules import SCHEDULE_NAME_LENGTH, CatchUp, Overlap

from .. import schedules as verbs
from ..access.audit import version_of
from ..access.policy import Action, may
from ..core.actors import Actor
from ..forms import Labels, can_be_written, is_plain_text, with_plain_ends, written_labels
from ..models import Task
from ..schedules import PlannedJob, PlannedTask, SchedulePlan, Timetable, problems_of
from ..schedules.timetable import LONGEST, zone_of
from .fields import Json, TellingForm, WholeNumber
from .pages import actor_for, ask_first, asks, changes, done, existing, fill_in, posted, reads, user_of

# The icons of what became of due times.
LOOKS = {
    "waiting": "ready",
    "running": "claimed",
    "succeeded": "done",
    "failed": "failed",
    "cancelled": "paused",
    "purged": "remove",
    "added": "done",
    "skipped": "skipped",
    "missed": "expired",
    "expired": "scheduled",
    "paused": "paused",
}
NEXT = 5  # Due times that are shown while somebody types.
CATCH_UPS = {
    CatchUp.SKIP: "add nothing; continue with the next due time",
    CatchUp.LATEST: "add one for all of them",
    CatchUp.ALL: "add one for each, at most the latest 1 000",
}
DEFAULT = "default"
OVERLAPS = {
    DEFAULT: "skip for jobs, allow for tasks",
    Overlap.SKIP: "add nothing",
    Overlap.WAIT: "add one as soon as the last one has ended",
    Overlap.ALLOW: "add another one",
}
ADDS = {"task": "a task in a group", "job": "a function that a worker runs"}
MOST_TIMEOUT_S = 366 * 86_400
SECONDS = re.compile(r"[0-9]{1,8}(\.[0-9]{1,3})?", re.ASCII)
DATA = ("content", "arguments", "named_arguments")  # Fields that need the right to see payloads.
RUNS = {"overlap": "overlap", "expires": "expires_s", "unique": "unique"}
# The form's fields, by the names that the plan has for them.
FIELDS = {
    "task": "adds",
    "task.group": "group",
    "task.data": "content",
    "task.labels": "labels",
    "job.labels": "labels",
    "task.priority": "priority",
    "job": "function",
    "job.function": "function",
    "job.args": "arguments",
    "job.kwargs": "named_arguments",
    "job.queue": "queue",
    "job.group": "queue",
    **{f"{kind}.{name}": field for kind in ("task", "job") for name, field in RUNS.items()},
    "job.priority": "priority",
}


NEW = {
    "cron": "0 3 * * *",
    "zone": "UTC",
    "catch_up": CatchUp.SKIP,
    "overlap": DEFAULT,
    "adds": "task",
    "queue": DEFAULT_QUEUE,
    "priority": "0",
}


class ScheduleForm(TellingForm):
    """The plan of a schedule. `before` is the plan that it changes; without `sees_data`, its data stays as it is.

    What the form can't show it has no field for, and leaves as it is.
    """

    places = FIELDS

    name = forms.CharField(max_length=SCHEDULE_NAME_LENGTH)
    cron = forms.CharField(max_length=LONGEST)
    zone = forms.CharField()
    catch_up = forms.ChoiceField(choices=[(each, each) for each in CATCH_UPS])
    overlap = forms.ChoiceField(required=False, choices=[(each, each) for each in OVERLAPS])
    expires_s = forms.CharField(required=False)
    unique = forms.CharField(required=False, max_length=KEY_LENGTH, strip=False)
    adds = forms.ChoiceField(choices=[(each, each) for each in ADDS])
    group = forms.CharField(required=False, max_length=GROUP_LENGTH, strip=False)
    content = forms.CharField(required=False, strip=False, widget=forms.Textarea({"rows": 4}))
    labels = Labels(required=False)
    function = forms.CharField(required=False, max_length=LABEL_LENGTH)
    arguments = Json(list, "must be a JSON list, such as [1, true]", empty="[]")
    named_arguments = Json(dict, 'must be a JSON object, such as {"to": "kim"}', empty="{}")
    queue = forms.CharField(required=False)
    max_attempts = WholeNumber(required=False, least=1, most=1_000)
    timeout_s = forms.CharField(required=False)
    priority = WholeNumber(required=False, least=-MOST_PRIORITY, most=MOST_PRIORITY)
    reason = forms.CharField(required=False, max_length=REASON_LENGTH)
    version = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, asked: Mapping[str, str] | None, before: SchedulePlan | None, *, sees_data: bool) -> None:
        super().__init__(asked, initial=_initial(before) if before else NEW)
        self._before = before
        if before:
            del self.fields["name"]
            unseen = {*(() if sees_data else DATA)}
            if not can_be_written(before.adds.labels):
                unseen.add("labels")
            if before.task and not is_plain_text(with_plain_ends(before.task.data)):
                unseen.add("content")
            for name in unseen:
                del self.fields[name]

    def clean_timeout_s(self) -> int | None:
        return self._milliseconds("timeout_s")

    def clean_expires_s(self) -> int | None:
        return self._milliseconds("expires_s")

    def _milliseconds(self, name: str) -> int | None:
        text = self.cleaned_data[name]
        if not text:
            return None
        if not SECONDS.fullmatch(text) or not 1 <= (ms := int(Decimal(text) * 1_000)) <= MOST_TIMEOUT_S * 1_000:
            raise forms.ValidationError(f"must be a number between 0.001 and {MOST_TIMEOUT_S}, such as 90 or 0.5")
        return ms

    def plan(self) -> SchedulePlan:
        given = self.cleaned_data
        times = {"cron": given["cron"], "zone": given["zone"], "catch_up": CatchUp(given["catch_up"])}
        if given["adds"] == "job":
            return SchedulePlan(**times, job=self._job())
        before = self._before.task if self._before else None
        data = before.data if before else ""
        # A browser sends all ends of lines alike.
        if "content" in given and with_plain_ends(given["content"]) != with_plain_ends(data):
            data = with_plain_ends(given["content"])
        task = PlannedTask(group=given["group"], data=data, **self._common())
        return SchedulePlan(**times, task=task)

    def _job(self) -> PlannedJob:
        given = self.cleaned_data
        before = self._before.job if self._before else None
        job = before or PlannedJob(function="")
        timeout_ms = given["timeout_s"] or None
        options = msgspec.structs.replace(
            job.options, max_attempts=given["max_attempts"] or None, timeout_ms=timeout_ms
        )
        return PlannedJob(
            function=given["function"],
            args=tuple(given.get("arguments", job.args)),
            kwargs=given.get("named_arguments", job.kwargs),
            queue=given["queue"] or DEFAULT_QUEUE,
            options=options,
            **self._common(),
        )

    def _common(self) -> dict[str, Any]:
        """Return what tasks and jobs have alike."""
        given = self.cleaned_data
        labels = given["labels"] if "labels" in given or not self._before else self._before.adds.labels
        overlap = None if given["overlap"] in ("", DEFAULT) else Overlap(given["overlap"])
        runs = {"overlap": overlap, "expires_ms": given["expires_s"], "unique": given["unique"]}
        return {**runs, "labels": labels, "priority": given["priority"] or 0}


def _initial(plan: SchedulePlan) -> dict[str, Any]:
    """Return the values of the form's fields for a plan."""
    times = NEW | {"cron": plan.cron, "zone": plan.zone, "catch_up": plan.catch_up, "priority": plan.adds.priority}
    times["version"] = version_of(plan)
    times |= {
        "overlap": plan.adds.overlap or DEFAULT,
        "expires_s": _seconds(plan.adds.expires_ms),
        "unique": plan.adds.unique,
        "labels": written_labels(plan.adds.labels),
    }
    if isinstance(plan.adds, PlannedTask):
        return times | {"adds": "task", "group": plan.adds.group, "content": plan.adds.data}
    return times | {
        "adds": "job",
        "function": plan.adds.function,
        "arguments": json.dumps(plan.adds.args, ensure_ascii=False) if plan.adds.args else "",
        "named_arguments": json.dumps(plan.adds.kwargs, ensure_ascii=False) if plan.adds.kwargs else "",
        "queue": plan.adds.queue,
        "max_attempts": plan.adds.options.max_attempts or "",
        "timeout_s": _seconds(plan.adds.options.timeout_ms),
    }


def _seconds(value_ms: int | None) -> str:
    return "" if value_ms is None else f"{Decimal(value_ms).scaleb(-3).normalize():f}"


@reads(Action.SEE)
def schedules(request: HttpRequest) -> HttpResponse:
    found = verbs.schedules()
    oldest = {each.name: each.origin for each in reversed(found)}
    past = verbs.last_of([each.origin for each in found], 1)
    return render(
        request,
        "tasks_app/schedules.html",
        {
            "schedules": [(each, next(iter(past[each.origin]), None)) for each in found],
            # A name means its oldest schedule: the others must not seem to be changed by it.
            "doubles": {each.origin for each in found if oldest[each.name] != each.origin},
            "now_ms": Task.objects.now_ms(),
        },
    )


@reads(Action.SEE)
def schedule(request: HttpRequest, name: str) -> HttpResponse:
    """Show a schedule: what became of its last due times, and why."""
    found = existing(verbs.schedule(name))
    past = verbs.last_of([found.origin])[found.origin]
    context = {
        "schedule": found,
        "past": past,
        "ticks": past[::-1],
        "may_operate": may(user_of(request), Action.OPERATE),
        "now_ms": Task.objects.now_ms(),
    }
    return render(request, "tasks_app/schedule.html", context)


@reads(Action.SEE)
def times(request: HttpRequest) -> HttpResponse:
    """Show the next due times of an expression that somebody types, or its errors."""
    return render(request, "tasks_app/_schedule_times.html", _times(request.GET))


@asks(Action.OPERATE)
def add(request: HttpRequest) -> HttpResponse:
    """Show the form; create the schedule."""
    form = ScheduleForm(posted(request), None, sees_data=True)

    def do(actor: Actor) -> HttpResponse:
        name = form.cleaned_data["name"]
        if verbs.schedule(name):
            raise InvalidInput({"name": ["A schedule with this name already exists. Edit it, or choose another name."]})
        made, _ = verbs.put(name, form.plan(), actor, version=form.cleaned_data["version"])
        return _done(request, f"Created schedule {made.name}.")

    return fill_in(request, form, "schedule_form", _choices(request, form), do)


@asks(Action.OPERATE)
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """Show the form; change the schedule. A broken one gets a new plan."""
    found = existing(verbs.schedule(name))
    sees_data = may(user_of(request), Action.SEE_PAYLOADS)
    form = ScheduleForm(posted(request), verbs.plan_of(name), sees_data=sees_data)
    form.fields.pop("name", None)

    def do(actor: Actor) -> HttpResponse:
        verbs.put(name, form.plan(), actor, version=form.cleaned_data["version"])
        return _done(request, f"Changed schedule {name}.")

    return fill_in(request, form, "schedule_form", _choices(request, form) | {"schedule": found}, do)


# Each verb that is asked about, with what does it and what is said then.
ASKED = {
    "pause": (verbs.pause, "Paused {}. It adds nothing until someone resumes it."),
    "run": (verbs.run_now, "Ran {}."),
    "delete": (verbs.delete, "Deleted schedule {}."),
}


@asks(Action.OPERATE)
def change(request: HttpRequest, name: str, verb: str) -> HttpResponse:
    change_it, said = ASKED[verb]

    def do(actor: Actor) -> HttpResponse:
        existing(change_it(name, actor))
        return _done(request, said.format(name))

    context = {"schedule": existing(verbs.schedule(name)), "verb": verb, "now_ms": Task.objects.now_ms()}
    return ask_first(request, "schedule_question", f"{verb.capitalize()} {name}", context, do)


@changes(Action.OPERATE)
def resume(request: HttpRequest, name: str) -> HttpResponse:
    existing(verbs.resume(name, actor_for(request)))
    return _done(request, f"Resumed {name}.")


def _choices(request: HttpRequest, form: ScheduleForm) -> dict[str, Any]:
    return {
        "sees_data": may(user_of(request), Action.SEE_PAYLOADS),
        "catch_ups": CATCH_UPS.items(),
        "overlaps": OVERLAPS.items(),
        "adds": ADDS.items(),
        "zones": _zones(),
        **_times({name: form[name].value() or "" for name in ("cron", "zone")}),
    }


def _times(asked: Mapping[str, str]) -> dict[str, Any]:
    cron, zone, now_ms = asked.get("cron", "").strip(), asked.get("zone", "").strip(), Task.objects.now_ms()
    try:
        refuse(problems_of(cron, zone))
    except InvalidInput as wrong:
        return {"wrong": wrong.fields}
    table, local = Timetable(cron=cron, zone=zone), zone_of(zone)
    due = [
        (at_ms, f"{datetime.fromtimestamp(at_ms // 1_000, tz=local):%a %d %b %Y, %H:%M:%S}")  # There.
        for at_ms in table.next(now_ms, NEXT)
    ]
    return {"words": table.in_words, "due": due, "now_ms": now_ms, "zone": zone}


@cache
def _zones() -> list[str]:
    return sorted(name for name in available_timezones() if "/" in name or name == "UTC")


def _done(request: HttpRequest, message: str) -> HttpResponse:
    return done(request, message, resolve_url("tasks_app:schedules"))
