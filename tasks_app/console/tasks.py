"""The page of a task, its data, and the end of its lease."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url
from django.views.decorators.http import require_http_methods, require_safe

from taskstore.errors import InvalidInput
from taskstore.types.job_record import queue_of
from taskstore.types.tasks import PLAIN, State

from ..access.policy import Action, may
from ..conf import retention
from ..control import leases
from ..control.progress import progress_of
from ..models import Task
from ..reading.history import Chain, chain_of
from . import links, parameters, payload
from .pages import actor_for, go_to, is_partial, page, user_of
from .payload import PayloadView
from .replica import from_replica
from .timeline import story_of


@require_safe
@page(Action.SEE)
@from_replica
def task(request: HttpRequest, task_id: int) -> HttpResponse:
    chain = chain_of(task_id, data_bytes=payload.READ_BYTES)
    if chain is None:
        newest = Task.objects.newest_id()
        context = {"task_id": task_id, "newest_id": newest, "is_future": task_id > newest}
        return render(request, "console/no_task.html", context | {"history": retention.in_words()}, status=404)
    user, now_ms = user_of(request), Task.objects.now_ms()
    state = chain.living.state(now_ms) if chain.living else None
    last = chain.living or chain.ended[-1]
    return render(
        request,
        "console/task.html",
        {
            "asked_id": task_id,
            "job_id": chain.origin if chain.living and queue_of(chain.group) else None,
            "commands_page": links.commands_page_of_task(chain.living) if chain.living else "",
            "chain": chain,
            "last": last,
            "plain": [(name, getattr(last, name)) for name in PLAIN if hasattr(last, name)],
            "unique": chain.living.unique if chain.living else "",
            "state": state,
            "now_ms": now_ms,
            "story": story_of(chain, now_ms),
            "history": retention.in_words(),
            "progress": progress_of([chain.living]).get(chain.origin) if chain.living else None,
            "sees_payloads": may(user, Action.SEE_PAYLOADS, chain.group),
            "shown": _shown(request, chain) if may(user, Action.SEE_PAYLOADS, chain.group) else None,
            "may_operate": may(user, Action.OPERATE, chain.group),
            "is_ready_already": state is State.READY
            and chain.living is not None
            and not (chain.living.is_failed or chain.living.failed_from),
        },
    )


@require_safe
@page(Action.SEE_PAYLOADS)
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


def _shown(request: HttpRequest, chain: Chain) -> PayloadView | None:
    living: Any = chain.living  # The query adds data_start and data_size.
    if living is None:
        return None
    start = bytes(living.data_start or b"")  # SQLite returns NULL for the start of empty data.
    return payload.show(start, parameters.form_of(request.GET), size=living.data_size, data_type=living.data_type)


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.OPERATE)
def give_back(request: HttpRequest, task_id: int) -> HttpResponse:
    """Ask for a reason; end the lease."""
    if request.method != "POST":
        return _question(request, task_id)
    try:
        task = leases.give_back(task_id, actor_for(request))
    except InvalidInput as refused:
        return _question(request, task_id, refused)
    messages.success(request, f"Gave back task {task_id}. It is ready as task {task.id}.")
    return go_to(request, resolve_url("console:task", task.id))


def _question(request: HttpRequest, task_id: int, refused: InvalidInput | None = None) -> HttpResponse:
    [task] = Task.objects.find([task_id])
    if task is None and refused is None:
        raise Http404
    now_ms = Task.objects.now_ms()
    return render(
        request,
        "console/_give_back.html" if is_partial(request) else "console/give_back.html",
        {
            "task": task,
            "task_id": task_id,
            "now_ms": now_ms,
            "is_held": task is not None and task.state(now_ms) is State.CLAIMED,
            "reason": request.POST.get("reason", ""),
            "errors": refused.fields if refused else {},
        },
        status=422 if refused else 200,
    )
