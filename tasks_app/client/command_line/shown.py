"""Tasks as they are shown: in a table, or one by one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ...quantities import size
from .. import Task
from .tables import Column, Fitting, facts, table
from .words import number, printable_lines, relative, when

PREVIEW = 120  # Characters of the data in a list.
GROUP = Column(title="group", style="bold", is_long=True)
COLUMNS = (
    Column(title="id", is_number=True, style="cyan"),
    Column(title="available"),
    Column(title="owner", is_number=True),
    Column(title="claims", is_number=True),
    Column(title="priority", is_number=True),
    Column(title="labels", is_long=True),
    Column(title="error", is_long=True, style="red"),
    Column(title="data", is_long=True, is_kept=True),
)


def tasks_table(tasks: Iterable[Task], now_ms: int, *, with_group: bool) -> Fitting:
    """A line for each."""
    if with_group:
        return table((GROUP, *COLUMNS), ([task.group, *_cells(task, now_ms)] for task in tasks))
    return table(COLUMNS, (_cells(task, now_ms) for task in tasks))


def _cells(task: Task, now_ms: int) -> Sequence[str]:
    return (
        str(task.id),
        relative(task.available_at_ms, now_ms),
        _owner(task),
        str(task.claims or ""),
        str(task.priority or ""),
        " ".join(_pairs(task.labels)),
        task.error,
        preview(task.data),
    )


def preview(data: bytes) -> str:
    """The beginning of the data, or how much of it there is where it is no text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"({size(len(data))}, no text)"
    return text if len(text) <= PREVIEW else f"{text[:PREVIEW]}… ({size(len(data))})"


def whole(task: Task, now_ms: int) -> RenderableType:
    """All that is known of a task: facts, then its data."""
    pairs = facts((name, what) for name, what in _facts(task, now_ms) if what)
    return Group(pairs, "", Text(_readable(task.data))) if task.data else pairs


def _facts(task: Task, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "id", str(task.id)
    yield "group", task.group
    yield "available", when(task.available_at_ms, now_ms)
    yield "owner", _owner(task)
    yield "claims", str(task.claims or "")
    yield "priority", str(task.priority or "")
    yield "labels", " ".join(_pairs(task.labels))
    yield "error", task.error
    yield "first id", str(task.origin) if task.origin != task.id else ""
    yield "created", when(task.created_at_ms, now_ms)
    yield "type of data", task.data_type
    yield "data", "" if task.data else "none"


def _owner(task: Task) -> str:
    # Before the first claim it is whoever added the task, and holds nothing.
    return str(task.owner) if task.claims and task.owner else ""


def _pairs(labels: Mapping[str, str]) -> Iterator[str]:
    return (f"{name}={value}" for name, value in labels.items())


def _readable(data: bytes) -> str:
    """JSON with a line for each member, other text as it is, else how many bytes there are."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"{size(len(data))}, no text: --json has it in base64"
    try:
        tree = json.loads(text)
    except ValueError:
        return printable_lines(text)
    # A number alone stays as it was written: 1.50, 1e400.
    return printable_lines(json.dumps(tree, indent=2, ensure_ascii=False) if isinstance(tree, dict | list) else text)


def added(tasks: Sequence[Task]) -> str:
    """`task 17`, or `3 tasks, 17 to 19`."""
    if len(tasks) == 1:
        return f"task {tasks[0].id}"
    return f"{number(len(tasks))} tasks, {tasks[0].id} to {tasks[-1].id}" if tasks else "no task"
