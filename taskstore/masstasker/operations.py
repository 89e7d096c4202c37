"""The operations that make up an Update: `store.do(delete(mail), create(sent))`.

An operation reads its tasks when the Update is sent, because renewals change their ids until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from google.protobuf.message import Message

from .masstasker_pb2 import Task, TaskRef, UpdateRequest

LONGEST_ERROR = 10_000  # Characters; a traceback may be longer than the store accepts.


class Draft:
    """An Update under construction. Once it has happened, the caller's tasks become the new ones."""

    def __init__(self, now: datetime) -> None:
        self.now = now  # By the server's clock.
        self.request = UpdateRequest()
        self._held: list[Task] = []

    def create(self, task: Task) -> None:
        self._make(task, as_=task)

    def delete(self, what: Task | TaskRef) -> None:
        self.request.deleted.append(TaskRef(id=what.id) if isinstance(what, Task) else what)

    def replace(self, task: Task, by: Task) -> None:
        self._make(task, as_=by)
        self.delete(task)

    def require(self, task: Task) -> None:
        self.request.predicates.append(task.id)

    def deletes(self, task: Task) -> bool:
        return any(ref.id == task.id for ref in self.request.deleted)

    def has_happened(self, ids: Iterable[int]) -> None:
        for held, made, task_id in zip(self._held, self.request.created, ids, strict=True):
            held.CopyFrom(made)
            held.id = task_id

    def _make(self, task: Task, as_: Task) -> None:
        self._held.append(task)
        self.request.created.append(as_)


Operation = Callable[[Draft], None]


def new_task(
    group: str,
    data: Message | bytes | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    not_before: datetime | None = None,
) -> Task:
    """Return a task for `create`. A protobuf message is packed with its type; bytes have none."""
    task = Task(group=group, labels=labels, not_before=not_before)
    if isinstance(data, bytes):
        task.data.value = data
    elif data is not None:
        task.data.Pack(data)
    return task


def create(*tasks: Task) -> Operation:
    """Add tasks. A task with the id of a task that the same Update deletes becomes its successor."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            draft.create(task)

    return draw


def update(*tasks: Task) -> Operation:
    """Replace tasks with their changed versions, without changing until when they are owned."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            draft.replace(task, by=task)

    return draw


def delete(*tasks: Task | TaskRef) -> Operation:
    """Delete tasks. A TaskRef can select a group or a label, which needs a token with the scope `operate`."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            draft.delete(task)

    return draw


def delete_unless_replaced(task: Task) -> Operation:
    """Delete the task unless an earlier operation does."""

    def draw(draft: Draft) -> None:
        if not draft.deletes(task):
            draft.delete(task)

    return draw


def move(group: str, *tasks: Task, error: str = "") -> Operation:
    """Move tasks to another group, available at once, with this error or none."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            moved = available(task)
            moved.group, moved.error = group, error
            draft.replace(task, by=moved)

    return draw


def disown(*tasks: Task) -> Operation:
    """Give owned tasks back, so that they are available at once."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            draft.replace(task, by=available(task))

    return draw


def reown(own_for: timedelta, *tasks: Task) -> Operation:
    """Own tasks for this long from now."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            owned = available(task)
            owned.not_before.FromDatetime(draft.now + own_for)
            draft.replace(task, by=owned)

    return draw


def require(*tasks: Task) -> Operation:
    """Apply the Update only if these tasks exist unchanged."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            draft.require(task)

    return draw


def copy_of(task: Task) -> Task:
    copy = Task()
    copy.CopyFrom(task)
    return copy


def available(task: Task) -> Task:
    """Return a copy without an owner."""
    copy = copy_of(task)
    copy.ClearField("not_before")
    return copy


def error_text(problem: BaseException) -> str:
    """Return the text of an exception within the limits of a task's error: no NUL, valid Unicode, bounded."""
    text = str(problem) or type(problem).__name__
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()[:LONGEST_ERROR]
