"""The page of a group; pause and resume."""

from __future__ import annotations

import json
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from taskstore.types.bulk import GIVE_BACK
from taskstore.types.groups import LATE_MS, LOST_MS, Pulse, pulse_of
from taskstore.types.scalars import INT64_MIN, whole
from taskstore.types.tasks import State, holds_results

from .. import bulk
from ..access.policy import Action, may
from ..alerts.diagnosis import of_empty, of_groups, of_worker
from ..control import pauses
from ..control.limits import uses_of
from ..control.pauses import pause_of
from ..core.actors import Actor
from ..models import BulkOperation, Rate, Task
from ..reading.clients import NOTHING, Holding, Seen, by_group, done_by, done_per_minute, held_by, holdings, seen
from ..reading.counts import Span, counts_of, stats_of
from ..reading.failures import failures
from ..reading.pages import facts_of, page_of, rows_of
from ..reading.search.finding import find
from ..reading.search.grammar import parse
from ..writer.totals import Numbers
from . import links, parameters
from .group_table import points_of, workers_in_words
from .pages import actor_for, ask_first, asks, changes, done, existing, reads, user_of
from .words import drain

FEW_OPERATIONS, FEW_LOOKED_AT = 3, 500  # On the page of a group; failed tasks that its errors are taken from.


@reads(Action.SEE, from_replica=True)
def group(request: HttpRequest) -> HttpResponse:
    name, state = parameters.group_of(request.GET), parameters.state_of(request.GET)
    if label := parameters.label_of(request.GET):
        # A search is limited and says how far it got; a group's page would scan on for a rare label.
        return redirect(links.labelled_page(name, state, label))
    after, before = parameters.places_of(request.GET)
    user, facts = user_of(request), _facts(name)
    counts = facts["counts"]
    sees_payloads = may(user, Action.SEE_PAYLOADS, name)
    matching = counts.tasks if state is None else int(getattr(counts, state))
    return render(
        request,
        "tasks_app/group.html",
        {
            "name": name,
            "state": state,
            "matching": matching,
            "tabs": tabs_of(counts),
            **facts,
            "failures": failures(name) if state in (State.RETRYING, State.FAILED) else None,
            "fails_with": failures(name, FEW_LOOKED_AT) if state is None and counts.failed + counts.retrying else None,
            "has_past": bool(counts.tasks) or Rate.objects.filter(group=name).exists(),
            "operations": [
                (each, bulk.why_not_undoable(each))
                for each in BulkOperation.objects.filter(group=name).order_by("-pk")[:FEW_OPERATIONS]
            ],
            "span": parameters.span_of(request.GET),
            "spans": list(Span),
            "page": page_of(name, state, after=after, before=before, with_data=sees_payloads),
            "sees_payloads": sees_payloads,
            "may_operate": may(user, Action.OPERATE, name),
        },
    )


@reads(Action.SEE, from_replica=True)
def facts(request: HttpRequest) -> HttpResponse:
    """Render the facts alone; an open page polls them."""
    name = parameters.group_of(request.GET)
    may_operate = may(user_of(request), Action.OPERATE, name)
    return render(request, "tasks_app/_facts.html", {"name": name, "may_operate": may_operate, **_facts(name)})


def _facts(name: str) -> dict[str, Any]:
    stats, clients, pause = stats_of([name]), seen(), pause_of(name)
    counts = stats[name].counts if stats else Numbers(name)
    [diagnosis] = of_groups(stats, clients).values() if stats else of_empty([name])
    entered, left = (stats[name].in_per_minute, stats[name].out_per_minute) if stats else (0.0, 0.0)
    return {
        "counts": counts,
        "facts": facts_of(name),
        "in_per_minute": entered,
        "out_per_minute": left,
        "drained": drain(counts.to_do, entered, left),
        "workers": workers_in_words(by_group(clients, [name]).get(name, [])),
        "pause": pause,
        "limit": stats[name].limit if stats else uses_of([name]).get(name),  # The group may be empty.
        "diagnosis": diagnosis,
    }


def tabs_of(counts: Numbers) -> list[tuple[State | None, int]]:
    """Return the tabs with their counts; None stands for all states.

    A group of records has those of its records, and of what somebody has claimed all the same. No other has finished
    tasks.
    """
    usual = (State.FINISHED, State.FAILED) if holds_results(counts.group) else [*State][:-1]
    numbers = {state: getattr(counts, state) for state in State}
    tabs = [(state, number) for state, number in numbers.items() if number or state in usual]
    return [(None, counts.tasks), *tabs]


@asks(Action.OPERATE)
def pause(request: HttpRequest) -> HttpResponse:
    name = parameters.group_of(request.POST if request.method == "POST" else request.GET)

    def do(actor: Actor) -> HttpResponse:
        pauses.pause(name, actor)
        said = f"Paused {name}. It hands out no tasks until someone resumes it."
        return done(request, said, links.to("group", name=name))

    return ask_first(request, "pause", f"Pause {name}", {"name": name, "counts": counts_of(name)}, do)


@changes(Action.OPERATE)
def resume(request: HttpRequest) -> HttpResponse:
    name = parameters.group_of(request.POST)
    pauses.resume(name, actor_for(request))
    return done(request, f"Resumed {name}. It hands out tasks again.", links.to("group", name=name))


# ---- The page of workers: clients that send heartbeats, with their leases and rates


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


DONE_MINUTES, MOST_HELD, FEW_FAILED = 60, 100, 10
FAILED_S = 0.5  # So long it looks for what has failed.


@reads(Action.SEE, from_replica=True)
def worker(request: HttpRequest, client_id: str) -> HttpResponse:
    """Show a worker: what it holds, has done lately and has failed at."""
    number = existing(whole(client_id, INT64_MIN))
    found = next((each for each in seen() if each.client.id == number), None)
    held, by_minute = held_by(number, MOST_HELD), done_by(number, DONE_MINUTES)
    if not (found or held or any(by_minute)):
        raise Http404
    since_ms = min((each.since_ms for _, each in held if each.since_ms), default=None)
    leases = Holding(tasks=sum(each.tasks for _, each in held), since_ms=since_ms)
    failed = f"owner:{number} error:*"
    ids = find(parse(failed), limit=FEW_FAILED, seconds=FAILED_S).ids
    return render(
        request,
        "tasks_app/worker.html",
        {
            "number": number,
            "worker": shown_of(found, leases, done_per_minute().get(number, 0.0)) if found else None,
            "info": json.loads(found.client.info).items() if found else (),
            "held": held,
            "leases": leases,
            "done": sum(by_minute),
            "done_line": points_of(by_minute) if any(by_minute) else "",
            "failed": rows_of(ids, Task.objects.now_ms()),
            "failed_search": failed,
            "give_back": links.to("confirm", verb=GIVE_BACK.name, q=f"owner:{number} state:claimed", all=1),
            "may_operate": may(user_of(request), Action.OPERATE),
            "now_ms": Task.objects.now_ms(),
        },
    )


def _trouble_first(worker: dict[str, Any]) -> tuple[bool, int, str, int]:
    """Return a key in an order that a heartbeat does not change: lost workers that hold tasks, lost, late, by name."""
    client = worker["seen"].client
    return worker["diagnosis"] is None, -list(Pulse).index(worker["pulse"]), str(client).casefold(), client.id


@reads(Action.SEE, from_replica=True)
def workers(request: HttpRequest) -> HttpResponse:
    now_ms, held, done = Task.objects.now_ms(), holdings(), done_per_minute()
    found = [shown_of(each, held.get(each.client.id, NOTHING), done.get(each.client.id, 0.0)) for each in seen()]
    return render(
        request,
        "tasks_app/workers.html",
        {
            "workers": sorted(found, key=_trouble_first)[:SHOWN],
            "number": len(found),
            "by_pulse": [(pulse, sum(worker["pulse"] is pulse for worker in found)) for pulse in Pulse],
            "now_ms": now_ms,
        },
    )
