"""The schedules: what comes due when, what came of it last, and what a person does about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from taskstore.errors import InvalidInput, refuse

from .. import schedules as verbs
from ..access.policy import Action, may
from ..models import Task
from ..schedules import StoredSchedule, Timetable, problems_of
from ..schedules.timetable import zone_of
from .pages import actor_for, go_to, is_partial, page, user_of
from .schedule_form import ADDS, CATCH_UPS, ScheduleForm
from .snippets import command_to_schedule

NEXT = 5  # Due times that are shown while somebody types.


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTime:
    """A due time, and what the clocks of the schedule's zone show then."""

    at_ms: int
    there: str


@require_safe
@page(Action.SEE)
def schedules(request: HttpRequest) -> HttpResponse:
    found = verbs.schedules()
    return render(
        request,
        "console/schedules.html",
        {
            "schedules": found,
            "doubles": _doubles(found),
            "now_ms": Task.objects.now_ms(),
            "command": command_to_schedule(request),
        },
    )


@require_safe
@page(Action.SEE)
def times(request: HttpRequest) -> HttpResponse:
    """The next due times of an expression that somebody types, or what is wrong with it."""
    return render(request, "console/_schedule_times.html", _times(request.GET))


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.OPERATE)
def add(request: HttpRequest) -> HttpResponse:
    """Ask for a schedule; make it."""
    form = ScheduleForm(request.POST if request.method == "POST" else None, None, sees_data=True)
    if form.is_valid() and verbs.schedule(form.cleaned_data["name"]):
        form.add_error("name", "A schedule with this name already exists. Edit it, or choose another name.")
    made = _put(request, form, form.cleaned_data["name"]) if form.is_valid() else None
    return _done(request, f"Created schedule {made.name}.") if made else _form(request, form)


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.OPERATE)
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """Ask how a schedule is to be; change it. One that is broken is written anew."""
    found = _named(name)
    sees_data = may(user_of(request), Action.SEE_PAYLOADS)
    asked = request.POST if request.method == "POST" else None
    form = ScheduleForm(asked, found.record.plan if found.record else None, sees_data=sees_data)
    form.fields.pop("name", None)
    made = _put(request, form, name) if form.is_valid() else None
    return _done(request, f"Changed schedule {name}.") if made else _form(request, form, found)


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.OPERATE)
def pause(request: HttpRequest, name: str) -> HttpResponse:
    return _asked_first(
        request, name, "pause", verbs.pause, f"Paused {name}. It adds nothing until someone resumes it."
    )


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.OPERATE)
def run(request: HttpRequest, name: str) -> HttpResponse:
    return _asked_first(request, name, "run", verbs.run_now, f"Ran {name}.")


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.OPERATE)
def delete(request: HttpRequest, name: str) -> HttpResponse:
    return _asked_first(request, name, "delete", verbs.delete, f"Deleted schedule {name}.")


@require_POST
@page(Action.OPERATE)
def resume(request: HttpRequest, name: str) -> HttpResponse:
    if verbs.resume(name, actor_for(request)) is None:
        raise Http404
    return _done(request, f"Resumed {name}.")


def _doubles(found: Sequence[StoredSchedule]) -> set[int]:
    """The origins of those whose name means an older one: what is done by name must not seem to be done to them."""
    first = {each.name: each.task.origin for each in reversed(found)}
    return {each.task.origin for each in found if first[each.name] != each.task.origin}


def _asked_first(
    request: HttpRequest, name: str, verb: str, do: Callable[..., object | None], told: str
) -> HttpResponse:
    """Ask why; do it."""
    found = _named(name)
    if request.method != "POST":
        return _question(request, found, verb)
    try:
        is_done = do(name, actor_for(request)) is not None
    except InvalidInput as refused:
        return _question(request, found, verb, refused)
    return _done(request, told) if is_done else _question(request, _named(name), verb)


def _question(
    request: HttpRequest, found: StoredSchedule, verb: str, refused: InvalidInput | None = None
) -> HttpResponse:
    return render(
        request,
        "console/_schedule_question.html" if is_partial(request) else "console/schedule_question.html",
        {
            "schedule": found,
            "verb": verb,
            "address": resolve_url(f"console:{verb}_schedule", found.name),
            "reason": request.POST.get("reason", ""),
            "errors": refused.fields if refused else {},
            "now_ms": Task.objects.now_ms(),
        },
        status=422 if refused else 200,
    )


def _put(request: HttpRequest, form: ScheduleForm, name: str) -> StoredSchedule | None:
    """The schedule of a valid form, or None when it is refused; then the form says why."""
    try:
        made, _ = verbs.put(name, form.plan(), actor_for(request))
    except InvalidInput as refused:
        form.tell(refused)
        return None
    return made


def _form(request: HttpRequest, form: ScheduleForm, found: StoredSchedule | None = None) -> HttpResponse:
    context = {
        "form": form,
        "schedule": found,
        "catch_ups": CATCH_UPS.items(),
        "adds": ADDS.items(),
        "zones": _zones(),
        **_times({name: form[name].value() or "" for name in ("cron", "zone")}),
    }
    return render(request, "console/schedule_form.html", context, status=422 if form.is_bound else 200)


def _times(asked: Mapping[str, str]) -> dict[str, Any]:
    cron, zone, now_ms = asked.get("cron", "").strip(), asked.get("zone", "").strip(), Task.objects.now_ms()
    try:
        refuse(problems_of(cron, zone))
    except InvalidInput as wrong:
        return {"wrong": wrong.fields}
    table = Timetable(cron=cron, zone=zone)
    due = [DueTime(at_ms=at_ms, there=_there(at_ms, zone)) for at_ms in table.next(now_ms, NEXT)]
    return {"words": table.in_words, "due": due, "now_ms": now_ms, "zone": zone}


def _there(at_ms: int, zone: str) -> str:
    """Mon 23 Nov 2026, 03:00:00"""
    return f"{datetime.fromtimestamp(at_ms // 1_000, tz=zone_of(zone)):%a %d %b %Y, %H:%M:%S}"


@cache
def _zones() -> list[str]:
    return sorted(name for name in available_timezones() if "/" in name or name == "UTC")


def _named(name: str) -> StoredSchedule:
    found = verbs.schedule(name)
    if found is None:
        raise Http404
    return found


def _done(request: HttpRequest, told: str) -> HttpResponse:
    messages.success(request, told)
    return go_to(request, resolve_url("console:schedules"))
