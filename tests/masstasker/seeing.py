"""What is in the store, as its own process sees it."""

from __future__ import annotations

from tasks_app.models import Task
from taskstore.types.tasks import State


def contents(group: str) -> list[bytes]:
    return [bytes(task.data) for task in Task.objects.group(group, owned=True)]


def states(group: str) -> list[State]:
    now_ms = Task.objects.now_ms()
    return [task.state(now_ms) for task in Task.objects.group(group, owned=True)]
