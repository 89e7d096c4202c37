"""The pages of a task: its data, adding and editing it, and the end of its lease."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url

from taskstore.errors import CommitRefused, InvalidInput
from taskstore.types.command_record import OF_LISTS, place_of
from taskstore.types.job_record import queue_of
from taskstore.types.scalars import GROUP_LENGTH, KEY_LENGTH, LATEST_MS, MOST_PRIORITY
from taskstore.types.tasks import ATTEMPTS, CONTENT, FAILED_FROM, PLAIN, Change, Ending, NewTask, State, holds_results

from .. import bulk
from ..access import audit
from ..access.policy import Action, may
from ..alerts.diagnosis import of_task
from ..conf import retention
from ..control import cancelling, pauses
from ..control.progress import progress_of
from ..core.actors import Actor
from ..database import atomic
from ..forms import NOBODY, Labels, TaskForm, with_plain_ends, written, written_labels
from ..models import Batch, Task
from ..reading.clients import names_of, seen
from ..reading.history import Chain, chain_of
from . import links, parameters, payload, words
from .fields import TellingForm, WholeNumber
from .pages import actor_for, ask_first, asks, done, existing, fill_in, posted, reads, user_of
from .payload import PayloadView
from .timeline import story_of

UNITS_MS = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
CONTEXT = 3  # Unchanged lines around a difference.


@reads(Action.SEE, from_replica=True)
def task(request: HttpRequest, task_id: int) -> HttpResponse:
    chain = chain_of(task_id, data_bytes=payload.READ_BYTES)
    if chain is None:
        newest = Task.objects.newest_id()
        context = {"task_id": task_id, "newest_id": newest, "is_future": task_id > newest}
        return render(request, "tasks_app/no_task.html", context | {"history": retention.in_words()}, status=404)
    user, now_ms = user_of(request), Task.objects.now_ms()
    state = chain.living.state(now_ms) if chain.living else None
    last = chain.living or chain.ended[-1]
    return render(
        request,
        "tasks_app/task.html",
        {
            "asked_id": task_id,
            "job_id": chain.origin if chain.living and queue_of(chain.group) else None,
            "commands_page": links.commands_page_of_task(chain.living) if chain.living else "",
            "chain": chain,
            "last": last,
            "plain": [(name, getattr(last, name)) for name in PLAIN if hasattr(last, name)],
            "unique": chain.living.unique if chain.living else "",
            "batch": Batch.objects.filter(pk=chain.living.batch).first()
            if chain.living and chain.living.batch
            else None,
            "state": state,
            "now_ms": now_ms,
            "story": story_of(chain, now_ms, names_of(link.owner for link in [*chain.ended, last])),
            "history": retention.in_words(),
            "progress": progress_of([chain.living]).get(chain.origin) if chain.living else None,
            "sees_payloads": may(user, Action.SEE_PAYLOADS, chain.group),
            "shown": _shown(request, chain) if may(user, Action.SEE_PAYLOADS, chain.group) else None,
            "may_operate": may(user, Action.OPERATE, chain.group),
            "is_ready_already": state is State.READY,
            "diagnosis": of_task(chain.living, now_ms, seen(), _data_start(chain.living)) if chain.living else None,
        },
    )


@reads(Action.SEE_PAYLOADS)
def data(request: HttpRequest, task_id: int) -> HttpResponse:
    """Download the data, byte for byte; the browser must not display it."""
    chain = chain_of(task_id)
    if chain is None or chain.living is None:
        raise Http404
    return HttpResponse(
        bytes(chain.living.data),
        content_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="task-{chain.living.id}"'},
    )


def _data_start(living: Any) -> bytes:  # The query adds data_start and data_size.
    return bytes(living.data_start or b"")  # SQLite returns NULL for the start of empty data.


def _shown(request: HttpRequest, chain: Chain) -> PayloadView | None:
    living: Any = chain.living  # The query adds data_start and data_size.
    if living is None:
        return None
    form, size = parameters.form_of(request.GET), living.data_size
    return payload.show(_data_start(living), form, size=size, data_type=living.data_type)


@asks(Action.OPERATE)
def give_back(request: HttpRequest, task_id: int) -> HttpResponse:
    """Ask for a reason; end the lease."""

    def do(actor: Actor) -> HttpResponse:
        task = pauses.give_back(task_id, actor)
        said = f"Gave back task {task_id}. It is ready as task {task.id}."
        return done(request, said, resolve_url("tasks_app:task", task.id))

    [task] = Task.objects.find([task_id])
    if task is None and request.method != "POST":
        raise Http404
    now_ms = Task.objects.now_ms()
    is_held = task is not None and task.state(now_ms) is State.CLAIMED
    context = {"task": task, "task_id": task_id, "now_ms": now_ms, "nothing": not is_held}
    return ask_first(request, "give_back", f"Give back task {task_id}", context, do)


@asks(Action.OPERATE)
def cancel(request: HttpRequest, task_id: int) -> HttpResponse:
    """Ask for a reason; cancel the task, the job or the list. `task_id`: its present id, or the first of its chain."""
    task = existing(Task.objects.get_queryset().of_chain(task_id).defer("data").first())
    is_job, place = queue_of(task.group) is not None, place_of(task.group)
    kind = "job" if is_job else "list" if place and place[1] in OF_LISTS else "command" if place else "task"
    shown = task.origin if is_job else task.id
    back = resolve_url("tasks_app:job" if is_job else "tasks_app:task", shown)

    def do(actor: Actor) -> HttpResponse:
        if not cancelling.cancel([task.origin], actor):
            raise InvalidInput({kind: [f"must be a {kind} that has not ended"]})
        return done(request, f"Cancelled {kind} {shown}.", back)

    context = {
        "kind": kind,
        "shown": shown,
        "back": back,
        "is_held": task.state(Task.objects.now_ms()) is State.CLAIMED,
        "nothing": holds_results(task.group),
    }
    return ask_first(request, "cancel", f"Cancel {kind} {shown}", context, do)


class NewTaskForm(TellingForm):
    """The fields of a new task."""

    places = {"data": "text", "timespec": "delay"}

    group = forms.CharField(max_length=GROUP_LENGTH, strip=False)
    text = forms.CharField(required=False, strip=False, widget=forms.Textarea({"rows": 7}))
    delay = WholeNumber(initial="0")
    unit = forms.ChoiceField(choices=[(unit, unit) for unit in UNITS_MS])
    priority = WholeNumber(initial="0", least=-MOST_PRIORITY, most=MOST_PRIORITY)
    labels = Labels(required=False)
    unique = forms.CharField(required=False, max_length=KEY_LENGTH, strip=False)

    def clean_text(self) -> bytes:
        return with_plain_ends(self.cleaned_data["text"]).encode()

    def clean_unit(self) -> str:
        unit: str = self.cleaned_data["unit"]
        longest = LATEST_MS // 2 // UNITS_MS[unit]
        if self.cleaned_data.get("delay", 0) > longest:
            self.add_error("delay", f"must be at most {longest} {unit}")
        return unit

    def task(self) -> NewTask:
        """Return the task that a valid form describes."""
        given = self.cleaned_data
        return NewTask(
            group=given["group"],
            data=given["text"],
            timespec_ms=-given["delay"] * UNITS_MS[given["unit"]],
            labels=given["labels"],
            priority=given["priority"],
            unique=given["unique"] or None,
        )


@asks(Action.WORK)
def add(request: HttpRequest) -> HttpResponse:
    """Show the form; add the task, with its audit entry in the same transaction."""
    form = NewTaskForm(posted(request), initial={"group": request.GET.get("name", "")})

    def do(actor: Actor) -> HttpResponse:
        with atomic():
            [task] = Task.objects.commit(owner=NOBODY, adds=[form.task()], scope=actor.scope)
            if not task.duplicate:
                details = {"ids": [task.id]}
                audit.record(actor, "add", group=task.group, selection=f"task {task.id}", done=1, details=details)
        if task.duplicate:
            has_ended = " It has ended, but keeps the key for some time." if task.ending else ""
            messages.warning(request, f"Nothing was added: task {task.id} holds this key.{has_ended}")
            return redirect("tasks_app:task", task.id)
        return done(request, f"Added task {task.id} to {task.group}.", resolve_url("tasks_app:task", task.id))

    return fill_in(request, form, "add", {}, do)


class EditForm(TaskForm):
    """The new values of a task, with the option to requeue it; a dead letter can be requeued where it is."""

    requeue = forms.BooleanField(required=False)
    here = forms.BooleanField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not (self.replaces and self.replaces.failed_from):
            del self.fields["here"]

    @property
    def change(self) -> Change:
        """Return the change that a valid form describes."""
        assert isinstance(self.operation, Change)  # noqa: S101 - the form has an existing task.
        return self.operation

    def _operation(self) -> NewTask | Change:
        operation = super()._operation()
        if not self.cleaned_data["requeue"] or isinstance(operation, NewTask):
            return operation
        change = replace(operation, error="", timespec_ms=0)
        if not self.replaces or "group" in self.changed_data:
            return change
        again = bulk.requeued(self.replaces, here=self.cleaned_data.get("here", False))
        if isinstance(again, bulk.Skip):
            raise InvalidInput({"requeue": [f"can't be done: the task is {again.why}"]})
        labels = {name: value for name, value in (change.labels or {}).items() if name != ATTEMPTS}
        return replace(
            change, group=again.group, failed_from="", labels=labels if self.replaces.failed_from else change.labels
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field that the edit changes, as lines that begin with "-", "+" or a space."""

    name: str
    lines: list[str]


@asks(Action.OPERATE)
def edit(request: HttpRequest, task_id: int) -> HttpResponse:
    """Show the form, then the differences; commit the change once it is confirmed."""
    [task] = Task.objects.find([task_id])
    if task is None:
        return _too_late(request, task_id)
    may_see_data = may(user_of(request), Action.SEE_PAYLOADS, task.group)
    asked = request.POST if request.method == "POST" else None
    form = EditForm(asked, instance=task, may_see_data=may_see_data, initial={"requeue": task.is_failed})
    context = {"task": task, "form": form, "is_claimed": task.state(Task.objects.now_ms()) is State.CLAIMED}
    if asked is None or "again" in asked or not form.is_valid():
        context |= {"shows_data": "content" in form.fields, "may_see_data": may_see_data}
        return render(request, "tasks_app/edit.html", context, status=422 if asked and "again" not in asked else 200)
    differences = list(differences_of(task, form.change))
    if "confirmed" not in asked or not differences:
        return render(request, "tasks_app/edit_review.html", context | {"differences": differences})
    actor, is_requeued = actor_for(request), form.cleaned_data["requeue"]
    operator = actor.operator(Ending.REQUEUED if is_requeued else Ending.CHANGED)
    try:
        with atomic():
            [successor] = Task.objects.commit(owner=NOBODY, updates=[form.change], scope=actor.scope, operator=operator)
            audit.record(
                actor,
                "edit",
                group=successor.group,
                selection=f"task {task.id}",
                done=1,
                details={"ids": [task.id, successor.id], "requeued": is_requeued},
            )
    except CommitRefused:
        return _too_late(request, task.id)
    messages.success(request, f"Task {task.id} is now {successor.id}.")
    return redirect("tasks_app:task", successor.id)


def differences_of(task: Task, change: Change) -> Iterator[Difference]:
    """Yield the fields that the change alters."""
    in_words = {"data": lambda data: written(bytes(data))[1], "labels": _in_lines}
    pairs = {}
    for name in CONTENT:
        before, after = getattr(task, name), getattr(change, name)
        shown = in_words.get(name, str)
        pairs[name.replace("_", " ")] = shown(before), shown(before if after is None else after)
    pairs |= {
        "available": (_moment(task.available_at_ms), _moment(change.timespec_ms)),
        "lease": (f"held by {task.owner}" if task.leased else "", ""),
    }
    for name, (before, after) in pairs.items():
        if before != after:
            yield Difference(name=name, lines=lines_of_difference(before, after))


def lines_of_difference(before: str, after: str) -> list[str]:
    """Return the lines of a Difference."""
    # Not splitlines, which ignores a line break at the end.
    old, new = (text.split("\n") if text else [] for text in (before, after))
    _, _, *lines = difflib.unified_diff(old, new, n=CONTEXT, lineterm="")
    places = [line for line in lines if line.startswith("@@")]
    # A single hunk needs no line numbers.
    return lines if len(places) > 1 else [line for line in lines if line not in places]


def _in_lines(labels: Any) -> str:
    # The group shows the origin of a dead letter already.
    return written_labels({name: value for name, value in labels.items() if name != FAILED_FROM})


def _moment(at_ms: int) -> str:
    # To a worker, available since a while ago and available now are the same.
    return "now" if at_ms <= Task.objects.now_ms() else words.exact(at_ms)


def _too_late(request: HttpRequest, task_id: int) -> HttpResponse:
    """Say that the task was finished, claimed or changed during the edit."""
    return render(request, "tasks_app/edit_too_late.html", {"task_id": task_id}, status=409)
