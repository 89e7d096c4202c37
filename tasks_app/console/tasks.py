"""The page of a task, found by any id it ever had."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from .. import retention
from ..history import Chain, chain_of
from ..job_record import queue_of
from ..models import Task
from ..operations import State
from ..policy import Action, may
from . import links, payload, reading
from .pages import page, user_of
from .payload import Shown
from .replica import from_replica
from .timeline import story_of


@require_safe
@page(Action.SEE)
@from_replica
def task(request: HttpRequest, task_id: int) -> HttpResponse:
    chain = chain_of(task_id, data_bytes=payload.READ_BYTES)
    if chain is None:
        return _unknown(request, task_id)
    user, now_ms = user_of(request), Task.objects.now_ms()
    state = chain.living.state(now_ms) if chain.living else None
    return render(
        request,
        "console/task.html",
        {
            "asked_id": task_id,
            "job_id": chain.origin if chain.living and queue_of(chain.group) else None,
            "commands_page": links.commands_page_of_task(chain.living) if chain.living else "",
            "chain": chain,
            "last": chain.living or chain.ended[-1],
            "state": state,
            "now_ms": now_ms,
            "story": story_of(chain, now_ms),
            "history": retention.in_words(),
            "shown": _shown(request, chain) if may(user, Action.SEE_PAYLOADS, chain.group) else None,
            "may_operate": may(user, Action.OPERATE, chain.group),
            "is_ready_already": state is State.READY and chain.living is not None and not chain.living.is_failed,
        },
    )


@require_safe
@page(Action.SEE_PAYLOADS)
def data(request: HttpRequest, task_id: int) -> HttpResponse:
    """The data itself, byte for byte, to be saved and never to be shown by the browser."""
    chain = chain_of(task_id)
    if chain is None or chain.living is None:
        raise Http404
    return HttpResponse(
        bytes(chain.living.data),
        content_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="task-{chain.living.id}"'},
    )


def _unknown(request: HttpRequest, task_id: int) -> HttpResponse:
    newest = Task.objects.newest_id()
    return render(
        request,
        "console/no_task.html",
        {
            "task_id": task_id,
            "newest_id": newest,
            "is_future": task_id > newest,
            "history": retention.in_words(),
        },
        status=404,
    )


def _shown(request: HttpRequest, chain: Chain) -> Shown | None:
    living: Any = chain.living  # With what the query added.
    if living is None:
        return None
    start = bytes(living.data_start or b"")  # SQLite's beginning of nothing is NULL.
    return payload.show(start, reading.form_of(request.GET), size=living.data_size, data_type=living.data_type)
