"""Ending the lease of one task."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url
from django.views.decorators.http import require_http_methods

from .. import leases
from ..errors import InvalidInput
from ..models import Task
from ..operations import State
from ..policy import Action
from . import reading
from .pages import go_to, is_partial, page, scope_for, user_of


@require_http_methods(["GET", "HEAD", "POST"])
@page(Action.OPERATE)
def give_back(request: HttpRequest, task_id: int) -> HttpResponse:
    """Ask why; end the lease."""
    if request.method != "POST":
        return _question(request, task_id)
    try:
        reason = reading.text_of(request.POST, "reason", reading.LONGEST_REASON).strip()
        task = leases.give_back(task_id, by=user_of(request).username, reason=reason, scope=scope_for(request))
    except InvalidInput as refused:
        return _question(request, task_id, refused)
    messages.success(request, f"Gave back task {task_id}: it is ready as {task.id}.")
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
