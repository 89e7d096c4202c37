"""What the tests of the admin put into the store and do on its pages. Ann and Bob are the owners."""

import re
from html import unescape
from typing import Any

from django.contrib.messages import get_messages
from django.test import Client

from tasks_app.models import EndedTask, Task
from tasks_app.reading import history
from taskstore.types.tasks import NewTask, Order

ANN = 1643
BOB = 2624

TASKS = "/admin/tasks_app/task/"


def add(group: str = "mail", **fields: Any) -> Task:
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group=group, **fields)])
    return task


def claim(group: str = "mail", duration_ms: int = 60_000) -> Task:
    [task] = Task.objects.claim(group, owner=BOB, duration_ms=duration_ms, order=Order.OLDEST)
    return task


def change_page(task: Task | int) -> str:
    return f"{TASKS}{task if isinstance(task, int) else task.id}/change/"


def fields_of(client: Client, url: str) -> dict[str, Any]:
    """What the form on the page sends when nothing is typed."""
    response = client.get(url)
    assert response.status_code == 200
    form = response.context["adminform"].form
    sent: dict[str, Any] = {}
    for bound in form:
        value = bound.value()
        if hasattr(bound.field.widget, "decompress"):
            date, time = bound.field.widget.decompress(value)
            sent |= {f"{bound.name}_0": date or "", f"{bound.name}_1": time or ""}
        else:
            sent[bound.name] = "" if value is None else value
    return sent


def ids_in(response: Any) -> list[int]:
    """The ids of the listed rows, from the top."""
    return [row.pk for row in response.context["cl"].result_list]


def trail_of(task: Task) -> list[EndedTask]:
    """What is written down of the ended ids of its chain."""
    chain = history.chain_of(task.id)
    assert chain
    return chain.ended


def messages_of(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def text_of(response: Any) -> str:
    """What a person reads on the page, in a line."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", response.content.decode())).split())
