"""The page of workers: clients that send heartbeats, with their leases and rates."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from taskstore.types.groups import LATE_MS, LOST_MS, Pulse, pulse_of

from ..access.policy import Action
from ..alerts.diagnosis import of_worker
from ..models import Task
from ..reading.clients import NOTHING, Holding, Seen, done_per_minute, holdings, seen
from .pages import reads

SHOWN = 500


def shown_of(seen: Seen, held: Holding, done_per_minute: float) -> dict[str, Any]:
    """Return what the page says of a worker."""
    pulse, at_ms = pulse_of(seen.age_ms), seen.client.seen_at_ms
    next_pulse_ms = {Pulse.LIVE: at_ms + LATE_MS, Pulse.LATE: at_ms + LOST_MS}
    return {
        "seen": seen,
        "pulse": pulse,
        "held": held,
        "done_per_minute": done_per_minute,
        "next_pulse_ms": next_pulse_ms.get(pulse),  # When it becomes late or lost without a heartbeat.
        "diagnosis": of_worker(seen, held) if pulse is Pulse.LOST and held.tasks else None,
    }


@reads(Action.SEE, from_replica=True)
def workers(request: HttpRequest) -> HttpResponse:
    now_ms, held, done = Task.objects.now_ms(), holdings(), done_per_minute()
    found = [shown_of(each, held.get(each.client.id, NOTHING), done.get(each.client.id, 0.0)) for each in seen()]
    return render(
        request,
        "tasks_app/workers.html",
        {
            "workers": sorted(found, key=lambda worker: list(Pulse).index(worker["pulse"]), reverse=True)[:SHOWN],
            "number": len(found),
            "by_pulse": [(pulse, sum(worker["pulse"] is pulse for worker in found)) for pulse in Pulse],
            "now_ms": now_ms,
        },
    )
