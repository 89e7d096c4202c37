"""The pages of bulk operations: progress, skipped tasks with their reasons, cancel and undo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url

from taskstore.types.bulk_actions import WORDS, Kind, Option
from taskstore.units import counted, number

from .. import bulk
from ..access.people import name_of
from ..access.policy import Action
from ..models import BulkItem, BulkOperation, Task
from . import parameters, words
from .pages import actor_for, changes, go_to, is_partial, reads, user_of

PAGE = 50
RECENT_MS = 30_000  # How long every page shows a finished operation, with its undo, to the person who started it.


def shown_of(operation: BulkOperation) -> dict[str, Any]:
    """Return what a page says of an operation: what it has done, what it has skipped and why, and whether undo goes."""
    kept, options = operation.parameters, WORDS[operation.verb].options
    facts = [(option.fact, _in_words(option, kept.get(option.name))) for option in options]
    facts.append(("leased tasks", "included" if kept.get("takes_claimed") else ""))
    reasons = bulk.reasons(operation.pk, operation.gone)
    return {
        "operation": operation,
        "is_running": operation.state == BulkOperation.State.RUNNING,
        "handled": operation.done + operation.skipped + operation.gone + operation.failed,
        "took_ms": (operation.ended_at_ms or Task.objects.now_ms()) - operation.began_at_ms,
        "why_no_undo": bulk.why_not_undoable(operation),
        # What undid it, or is undoing it.
        "undo": BulkOperation.objects.filter(undoes=operation.pk).order_by("-pk").first(),
        "reasons": reasons,
        "sentence": _sentence(operation, reasons),
        "parameters": [(fact, text) for fact, text in facts if fact and text],
    }


def _sentence(operation: BulkOperation, reasons: Mapping[str, int]) -> str:
    group, to = operation.group, "" if operation.undoes else bulk.action_of(operation).to_group
    where = f" in {group}" if group else ""
    if to:
        where = f" from {group} to {to}" if group else f" to {to}"
    words_of = WORDS[operation.verb]
    if operation.state == BulkOperation.State.RUNNING:
        return f"{words_of.doing} {counted(operation.expected, 'task')}{where}"
    skipped = ", ".join(f"{number(count)} {why}" for why, count in reasons.items())
    said = [f"{words_of.done} {counted(operation.done, 'task')}{where}."]
    said += [f"Skipped: {skipped}."] * bool(skipped)
    said += [f"Failed: {number(operation.failed)}."] * bool(operation.failed)
    said += [f"Cancelled by {operation.cancelled_by}."] * (operation.state == BulkOperation.State.CANCELLED)
    return " ".join(said)


def _in_words(option: Option, value: str | int | None) -> str:
    """Return the value of an option as text; empty for the default."""
    if value == option.default:
        return ""
    match option.kind, value:
        case Kind.TIME, int():
            return words.exact(value)
        case Kind.MINUTES, int():
            return f"{number(value)} min"
    return "none" if value == "" else str(value)


@reads(Action.SEE)
def operations(request: HttpRequest) -> HttpResponse:
    """List the operations, newest first."""
    after = request.GET.get("after")
    listed = BulkOperation.objects.order_by("-pk")
    if after:
        listed = listed.filter(pk__lt=parameters.whole_number("after", after, least=1))
    found = list(listed[: PAGE + 1])
    return render(
        request,
        "tasks_app/operations.html",
        {
            "operations": found[:PAGE],
            "next": found[PAGE - 1].pk if len(found) > PAGE else None,
            "is_first": not after,
            "now_ms": Task.objects.now_ms(),
        },
    )


@reads(Action.SEE)
def operation(request: HttpRequest, operation_id: int) -> HttpResponse:
    """Show an operation; an open page polls it as a partial while it runs."""
    shown = shown_of(_named(operation_id))
    left_alone = BulkItem.objects.filter(operation=operation_id).exclude(outcome=BulkItem.Outcome.DONE)
    after = parameters.whole_number("after", request.GET.get("after") or "0")
    items = list(left_alone.filter(origin__gt=after).defer("data").order_by("origin")[: PAGE + 1])
    return render(
        request,
        "tasks_app/_operation.html" if is_partial(request) else "tasks_app/operation.html",
        {
            "shown": shown,
            "items": items[:PAGE],
            "next": items[PAGE - 1].origin if len(items) > PAGE else None,
            "now_ms": Task.objects.now_ms(),
        },
    )


@changes(Action.OPERATE)
def cancel(request: HttpRequest, operation_id: int) -> HttpResponse:
    bulk.cancel(_named(operation_id), actor_for(request))
    return go_to(request, resolve_url("tasks_app:operation", operation_id))


@changes(Action.OPERATE)
def undo(request: HttpRequest, operation_id: int) -> HttpResponse:
    """Start an undo, which skips tasks that have changed since."""
    begun = bulk.undo(_named(operation_id), actor_for(request))
    return go_to(request, resolve_url("tasks_app:operation", begun.pk))


@reads(Action.SEE)
def mine(request: HttpRequest) -> HttpResponse:
    """Render the recent operations of the person, which every page shows."""
    return render(request, "tasks_app/_mine.html", {"mine": recent_of(name_of(user_of(request)))})


def recent_of(name: str) -> list[dict[str, Any]]:
    """Return the operations of a person that run or have just ended, newest first, at most three."""
    began = BulkOperation.objects.filter(by=name)
    running = began.filter(state=BulkOperation.State.RUNNING)
    ended = began.filter(ended_at_ms__gt=Task.objects.now_ms() - RECENT_MS)
    recent = {*running, *ended}
    undone = {operation.undoes for operation in recent}
    newest = sorted((each for each in recent if each.pk not in undone), key=lambda each: -each.pk)
    return [shown_of(each) for each in newest[:3]]


def _named(operation_id: int) -> BulkOperation:
    try:
        return BulkOperation.objects.get(pk=operation_id)
    except BulkOperation.DoesNotExist:
        raise Http404 from None
