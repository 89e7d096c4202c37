"""The pages of bulk operations: progress, skipped tasks with their reasons, cancel and undo."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect, render, resolve_url

from taskstore.errors import InvalidInput, refuse
from taskstore.types import sentences
from taskstore.types.bulk import WORDS, Kind, Option
from taskstore.types.bulk import BulkAction as Words
from taskstore.types.tasks import State
from taskstore.units import counted, number

from .. import bulk
from ..access.people import name_of
from ..access.policy import Action
from ..bulk import Action as BulkAction
from ..bulk import Asked, Preview, Selection
from ..conf import retention
from ..core.actors import Actor
from ..models import BulkItem, BulkOperation, Task
from ..offload.threads import streamed
from ..reading import audit as audited
from ..reading.audit import FIELDS, Page, Wanted, cursor, file_of
from ..reading.exporting import MEDIA_TYPES, Format
from ..reading.pages import rows_of
from . import links, parameters, words
from .pages import (
    actor_for,
    ask_first,
    asks,
    changes,
    existing,
    go_to,
    is_partial,
    reads,
    user_of,
    without_empty_fields,
)

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
    begun = BulkOperation.objects.filter(undoes__in=[each.pk for each in found])
    undos = {each.undoes: each for each in begun.order_by("pk")}
    return render(
        request,
        "tasks_app/operations.html",
        {
            "operations": [(each, undos.get(each.pk)) for each in found[:PAGE]],
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


@asks(Action.OPERATE)
def undo(request: HttpRequest, operation_id: int) -> HttpResponse:
    """Ask for a reason; start an undo, which skips tasks that have changed since."""
    operation = _named(operation_id)

    def do(actor: Actor) -> HttpResponse:
        return go_to(request, resolve_url("tasks_app:operation", bulk.undo(operation, actor).pk))

    context = {"operation": operation, "nothing": bulk.why_not_undoable(operation)}
    return ask_first(request, "undo", f"Undo operation {operation_id}", context, do)


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
    return existing(BulkOperation.objects.filter(pk=operation_id).first())


# ---- The pages of the audit log: its list, one entry, and the export


# The filter's fields, each with its label and an example.
ASKED = {
    "by": ("Actor", "ann, token:backup"),
    "action": ("Action", "requeue"),
    "group": ("Group", "mail, pay/*"),
    "since": ("From (UTC)", "now-7d"),
    "until": ("Until (UTC)", "2026-01-31"),
    "reason": ("Reason", "part of the reason"),
}
TIMES = ("now-1h", "now-1d", "now-7d", "now-30d")


@reads(Action.OPERATE)
def audit(request: HttpRequest) -> HttpResponse:
    """List the entries that match the query, newest first."""
    if "" in request.GET.dict().values():
        return redirect(without_empty_fields(request))
    try:
        found = audited.page_of(_wanted(request, "after"), after=cursor(request.GET.get("after")))
    except InvalidInput as refused:
        return _page(request, None, refused)
    return _page(request, found)


@reads(Action.OPERATE)
def entry(request: HttpRequest, entry_id: int) -> HttpResponse:
    """Show one entry with all its details."""
    found = audited.entry_of(entry_id)
    context = {"entry_id": entry_id, "entry": found, "days": retention.audit_days(), "now_ms": Task.objects.now_ms()}
    if found is None:
        return render(request, "tasks_app/no_audit_entry.html", context, status=404)
    # The details that have no place of their own.
    others = [
        (name.replace("_", " "), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in found.details.items()
        if name not in ("ids", "skipped")
    ]
    return render(request, "tasks_app/audit_entry.html", context | {"others": others})


@reads(Action.OPERATE)
def export(request: HttpRequest) -> StreamingHttpResponse:
    """Download all entries that match the query."""
    form = parameters.format_of(request.GET)
    answer = streamed(request, file_of(_wanted(request, "format"), form), MEDIA_TYPES[form])
    answer["Content-Disposition"] = f'attachment; filename="audit.{form}"'
    return answer


def _wanted(request: HttpRequest, *others: str) -> Wanted:
    """Parse the filter. A misspelt parameter is refused, because without it the page would show every entry."""
    known = (*FIELDS, *others)
    refuse((name, sentences.unknown("parameter", known)) for name in request.GET if name not in known)
    return Wanted.read(request.GET.dict())


def _page(request: HttpRequest, found: Page | None, refused: InvalidInput | None = None) -> HttpResponse:
    problems = refused.fields if refused else {}
    actors, actions = audited.recently()
    suggestions = {"by": actors, "action": actions, "since": TIMES, "until": TIMES}
    context = {
        "fields": [
            {
                "name": name,
                "label": label,
                "example": example,
                "value": request.GET.get(name, ""),
                "suggestions": suggestions.get(name, ()),
                "problems": problems.get(name, ()),
            }
            for name, (label, example) in ASKED.items()
        ],
        "other_problems": [f"{name}: {' '.join(texts)}" for name, texts in problems.items() if name not in ASKED],
        "found": found,
        "is_filtered": any(name in request.GET for name in FIELDS),
        "is_first": "after" not in request.GET,
        "forms": list(Format),
        "days": retention.audit_days(),
        "now_ms": Task.objects.now_ms(),
    }
    return render(request, "tasks_app/audit.html", context, status=400 if refused else 200)


# ---- Bulk operations: the confirmation with exact numbers, and the start


MOST_TARGETS = 10  # Groups that a confirmation names.
INPUT_TYPES = {Kind.TIME: "datetime-local", Kind.MINUTES: "number", Kind.PRIORITY: "number"}


def plan_of(action: BulkAction, preview: Preview, asked: QueryDict) -> dict[str, Any]:
    """Return the effect of an action on the tasks of a preview, in numbers, and the fields of its options."""
    ready_already = preview.ready_already if action.makes_available else 0
    affected = preview.count - preview.claimed - ready_already - preview.ended
    if action.words.of_leases:
        affected = preview.claimed + preview.by_state[State.EXPIRED]
    asks_for_claimed = bool(preview.claimed) and not action.words.of_leases
    selection, options = preview.selection, action.options_for(preview.dead_letters, preview.closes)
    # Each with its value. Of one with a checkbox, the value stays as it is while that is unticked.
    fields = [
        (option, INPUT_TYPES.get(option.kind, "text"), asked.get(option.name, ""), f"set_{option.name}" in asked)
        for option in options
    ]
    rare = [field for field in fields if field[0].is_rare]
    takes_group = any(option.kind is Kind.GROUP for option in options)
    return {
        "preview": preview,
        "selection": selection,
        "words": action.words,
        "url": resolve_url(links.page_of_action(action.words.name)),
        "typed": bulk.to_type(action.words, preview),  # Empty: nothing needs to be typed to confirm.
        "otherwise": [option.otherwise for option in options if option.otherwise],
        "plain_fields": [each for each in fields if not each[0].is_rare and each[0].default is not None],
        "settable_fields": [each for each in fields if each[0].default is None],
        "rare_fields": rare,
        "has_rare_values": any(value for _, _, value, _ in rare),
        "groups": Task.objects.groups() if takes_group else [],
        "affected": affected,
        "asks_for_claimed": asks_for_claimed,
        "ready_already": ready_already,
        "button": _button(action.words, preview, affected),
        "button_with_claimed": _button(action.words, preview, affected + (asks_for_claimed and preview.claimed)),
        "some_targets": preview.targets[:MOST_TARGETS],
        "more_targets": len(preview.targets[MOST_TARGETS:]),
        "closes": preview.closes[:MOST_TARGETS],
        "closes_more": len(preview.closes[MOST_TARGETS:]),
        "missing": 0 if selection.ids is None else len(selection.ids) - preview.count,  # They no longer exist.
        "by_state": [(state, count) for state, count in preview.by_state.items() if count],
        "samples": rows_of(preview.samples, selection.as_of_ms),
    }


def _button(words: Words, preview: Preview, count: int) -> str:
    """Return the words of the button. A requeue that moves tasks names the target."""
    tasks, targets = counted(count, "task"), preview.targets
    if not any(target.moved for target in targets):
        return f"{words.label} {tasks}"
    where = targets[0].group if len(targets) == 1 else counted(len(targets), "group")
    if any(target.moved < target.count for target in targets):
        return f"{words.label} {tasks} in {where}"
    return f"Send back to {where}" + ("" if count == 1 else f" ({tasks})")


@reads(Action.OPERATE)
def confirm(request: HttpRequest) -> HttpResponse:
    """Show the effect of an action on the selection, and ask for confirmation."""
    selection = parameters.selection_of(request.GET, user_of(request))
    return _confirmation(request, bulk.action_named(request.GET.get("verb", "")), selection)


@changes(Action.OPERATE)
def begin(request: HttpRequest, verb: str) -> HttpResponse:
    """Start the confirmed action, or show the confirmation again with the errors and the current numbers."""
    actor = actor_for(request)
    parameters.whole_number("bound", request.POST.get("bound", ""), least=1)
    selection = parameters.selection_of(request.POST, user_of(request))
    asked = Asked(
        action=parameters.action_in(request.POST, verb),
        selection=selection,
        expected=parameters.whole_number("expected", request.POST.get("expected", "")),
        typed=request.POST.get("typed", ""),
    )
    back = _page_before(request.POST, selection)  # Read first: nothing may fail after the start.
    try:
        bulk.start(asked, actor)
    except InvalidInput as refused:
        return _confirmation(request, type(asked.action), selection, refused)
    return go_to(request, back)


def _confirmation(
    request: HttpRequest, action: type[BulkAction], selection: Selection, refused: InvalidInput | None = None
) -> HttpResponse:
    asked = request.POST if refused else request.GET
    # Drop the old bound: a repeated confirmation shows the current tasks.
    fresh = action()
    seen = bulk.preview(replace(selection, bound=0, as_of_ms=0), fresh)
    bulk.refuse_forbidden(seen, fresh, actor_for(request))
    return render(
        request,
        "tasks_app/_confirm.html" if is_partial(request) else "tasks_app/confirm.html",
        {
            "plan": plan_of(fresh, seen, asked),
            "back": _page_before(asked, selection),
            "asked": asked,
            "errors": _as_of_now(refused.fields, seen, asked) if refused else {},
        },
        status=422 if refused else 200,
    )


def _as_of_now(problems: Mapping[str, Sequence[str]], seen: Preview, asked: QueryDict) -> Mapping[str, Sequence[str]]:
    """Return the problems with the number that the page shows: the selection may have changed again meanwhile."""
    if "expected" not in problems:
        return problems
    return {**problems, "expected": [bulk.changed_since(int(str(asked["expected"])), seen.count)]}


def _page_before(asked: QueryDict, selection: Selection) -> str:
    """Return the page that the person came from: the task, the group's tab, or the search."""
    if task := asked.get("task"):
        return resolve_url("tasks_app:task", parameters.whole_number("task", task, least=1))
    if selection.group:
        return links.to("group", name=selection.group, state=parameters.state_of(asked))
    return links.to("search", q=asked.get("q", ""))
