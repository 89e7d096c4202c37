"""Who works: the clients that say that they live, what they hold, and how much they do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ..access.policy import Action
from ..core.heartbeats import LATE_MS, LOST_MS
from ..models import Task
from ..reading.clients import NOTHING, Holding, Seen, done_per_minute, holdings, seen
from .pages import page
from .replica import from_replica
from .snippets import command_to_be_heard

SHOWN = 500


class Pulse(StrEnum):
    """What the age of the last heartbeat says."""

    LIVE = "live"
    LATE = "late"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A client with what it holds and does."""

    seen: Seen
    pulse: Pulse
    held: Holding
    done_per_minute: float
    next_pulse_ms: int | None  # When it is late, or lost, if nothing is heard of it; None: it is lost.


@require_safe
@page(Action.SEE)
@from_replica
def workers(request: HttpRequest) -> HttpResponse:
    now_ms, held, done = Task.objects.now_ms(), holdings(), done_per_minute()
    found = [_worker(each, held.get(each.client.id, NOTHING), done.get(each.client.id, 0.0)) for each in seen()]
    return render(
        request,
        "console/workers.html",
        {
            "workers": sorted(found, key=lambda worker: list(Pulse).index(worker.pulse), reverse=True)[:SHOWN],
            "number": len(found),
            "by_pulse": [(pulse, sum(worker.pulse is pulse for worker in found)) for pulse in Pulse],
            "now_ms": now_ms,
            "command": command_to_be_heard(request),
        },
    )


def _worker(seen: Seen, held: Holding, done_per_minute: float) -> Worker:
    pulse = Pulse.LIVE if seen.age_ms < LATE_MS else Pulse.LATE if seen.age_ms < LOST_MS else Pulse.LOST
    age_of_next = {Pulse.LIVE: LATE_MS, Pulse.LATE: LOST_MS}.get(pulse)
    next_pulse_ms = seen.client.seen_at_ms + age_of_next if age_of_next else None
    return Worker(seen=seen, pulse=pulse, held=held, done_per_minute=done_per_minute, next_pulse_ms=next_pulse_ms)
