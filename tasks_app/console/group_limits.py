"""The pages of groups' limits: the list, the limit of a group with its use, and the changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from taskstore.types.limits import MOST_CLAIMS, MOST_PER_MS, MOST_RUNNING, GroupLimit, LimitsRequest, Rate
from taskstore.types.scalars import GROUP_LENGTH, LABEL_LENGTH, REASON_LENGTH

from ..access.policy import Action, may
from ..alerts.diagnosis import holders_of
from ..control import limits as control
from ..core.actors import Actor
from ..models import AuditEntry, Task
from ..models import GroupLimit as StoredLimit
from ..reading.clients import seen
from . import links, parameters
from .fields import TellingForm, WholeNumber
from .pages import ask_first, asks, done, existing, fill_in, posted, reads, user_of

MOST_HOLDERS, MOST_VALUES = 20, 20  # Shown on the page of a limit.
SECONDS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?", re.ASCII)


class LimitForm(TellingForm):
    places: Mapping[str, str] = {"rate.claims": "claims", "rate.per": "per_s"}

    name = forms.CharField(max_length=GROUP_LENGTH, strip=False)
    running = WholeNumber(required=False, least=1, most=MOST_RUNNING)
    claims = WholeNumber(required=False, least=1, most=MOST_CLAIMS)
    per_s = forms.CharField(required=False)
    by = forms.CharField(required=False, max_length=LABEL_LENGTH)
    reason = forms.CharField(required=False, max_length=REASON_LENGTH)

    def clean_per_s(self) -> int | None:
        """Return milliseconds."""
        text = self.cleaned_data["per_s"].strip()
        if not text:
            return None
        if not SECONDS.fullmatch(text) or not 1 <= (ms := int(Decimal(text) * 1_000)) <= MOST_PER_MS:
            most = MOST_PER_MS // 1_000
            raise forms.ValidationError(f"must be a number of seconds between 0.001 and {most}, such as 1 or 0.5")
        return ms

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        for name, other in (("claims", "per_s"), ("per_s", "claims")):
            if given.get(name) and not self[other].value():
                self.add_error(other, "is required with a rate")
        return given

    @property
    def request(self) -> LimitsRequest:
        given = self.cleaned_data
        rate = Rate(given["claims"], given["per_s"]) if given["claims"] else None
        return LimitsRequest(given["name"], running=given["running"], rate=rate, by=given["by"])


@reads(Action.SEE)
def limits(request: HttpRequest) -> HttpResponse:
    """List the limits, with the use of those of one group."""
    found = control.limits_in()
    uses = control.uses_of([limit.name for limit in found if not limit.name.endswith("*")])
    shown = [uses.get(limit.name, limit) for limit in found]
    return render(request, "tasks_app/group_limits.html", {"limits": shown, "now_ms": Task.objects.now_ms()})


@reads(Action.SEE)
def limit(request: HttpRequest) -> HttpResponse:
    name = parameters.group_of(request.GET)
    found = existing(control.limit_of(name))
    may_operate = may(user_of(request), Action.OPERATE, found.name)
    row = StoredLimit.objects.get(name=found.name)
    settings = AuditEntry.objects.filter(group=found.name, action="set limits", actor=row.set_by)
    context = {
        "name": name,
        "limit": found,
        "fullest": found.use[:MOST_VALUES],
        "more_values": len(found.use[MOST_VALUES:]),
        "holders": [] if name.endswith("*") else holders_of(name, seen(), MOST_HOLDERS),
        "row": row,
        "reason": settings.order_by("-at", "-id").values_list("reason", flat=True).first(),
        "may_operate": may_operate,
        "now_ms": Task.objects.now_ms(),
    }
    return render(request, "tasks_app/group_limit.html", context)


@asks(Action.OPERATE)
def set_limit(request: HttpRequest) -> HttpResponse:
    """Show the form; set the limit. `name` in the query: the group to limit, with what limits it now."""
    name = parameters.group_of(request.GET) if request.GET.get("name") else ""
    before = control.limit_of(name) if name else None
    form = LimitForm(posted(request), initial=_initial(name, before))

    def do(actor: Actor) -> HttpResponse:
        made = control.put(form.request, actor)
        return done(request, f"Limited {form.request.name}: {made}.", links.to("group_limit", name=form.request.name))

    return fill_in(request, form, "group_limit_form", {"name": name, "before": before}, do)


@asks(Action.OPERATE)
def remove_limit(request: HttpRequest) -> HttpResponse:
    name = parameters.group_of(request.POST if request.method == "POST" else request.GET)

    def do(actor: Actor) -> HttpResponse:
        control.remove(name, actor)
        return done(request, f"Removed the limit of {name}.", links.to("group_limits"))

    context = {"name": name, "limit": existing(control.limit_of(name))}
    return ask_first(request, "remove_limit", f"Remove the limit of {name}", context, do)


def _initial(name: str, before: GroupLimit | None) -> dict[str, Any]:
    if before is None:
        return {"name": name}
    rate = before.rate
    per_s = f"{Decimal(rate.per_ms).scaleb(-3).normalize():f}" if rate else ""
    return {
        "name": name,
        "running": before.running or "",
        "claims": rate.claims if rate else "",
        "per_s": per_s,
        "by": before.by,
    }
