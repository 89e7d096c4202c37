"""What can be done to tasks, as parts of one Update: `store.do(delete(mail), create(sent))`.

An operation reads the tasks when the Update is made, not before: their ids may change until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from google.protobuf.message import Message

from .masstasker_pb2 import Task, TaskRef, UpdateRequest

LONGEST_ERROR = 10_000  # Of the text of an error: a traceback may be longer than what a task can carry.


class Draft:
    """One Update while operations put it together. When it has happened, the caller's tasks are those it made."""

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
    """A task for `create`. A message is packed with its type, bytes go without one."""
    task = Task(group=group, labels=labels, not_before=not_before)
    if isinstance(data, bytes):
        task.data.value = data
    elif data is not None:
        task.data.Pack(data)
    return task


def create(*tasks: Task) -> Operation:
    """Add tasks. One whose id the same Update deletes is its successor."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            draft.create(task)

    return draw


def update(*tasks: Task) -> Operation:
    """Replace tasks by what the caller has made of them, the time until which they are owned as it is."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            draft.replace(task, by=task)

    return draw


def delete(*tasks: Task | TaskRef) -> Operation:
    """Delete tasks; by TaskRef also all of a group or with a label, which needs the right to operate."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            draft.delete(task)

    return draw


def delete_unless_replaced(task: Task) -> Operation:
    """Delete the task if no operation before this one does."""

    def draw(draft: Draft) -> None:
        if not draft.deletes(task):
            draft.delete(task)

    return draw


def move(group: str, *tasks: Task, error: str = "") -> Operation:
    """Replace tasks by the same in another group, available at once, with this error or none."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            moved = available(task)
            moved.group, moved.error = group, error
            draft.replace(task, by=moved)

    return draw


def disown(*tasks: Task) -> Operation:
    """Give owned tasks back: they are available at once."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            draft.replace(task, by=available(task))

    return draw


def reown(own_for: timedelta, *tasks: Task) -> Operation:
    """Own tasks for so long from now on."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            owned = available(task)
            owned.not_before.FromDatetime(draft.now + own_for)
            draft.replace(task, by=owned)

    return draw


def require(*tasks: Task) -> Operation:
    """The Update happens only if these exist, unchanged: what is replaced or deleted is refused."""

    def draw(draft: Draft) -> None:
        for task in tasks:
            draft.require(task)

    return draw


def copy_of(task: Task) -> Task:
    copy = Task()
    copy.CopyFrom(task)
    return copy


def available(task: Task) -> Task:
    """A copy that nobody owns."""
    copy = copy_of(task)
    copy.ClearField("not_before")
    return copy


def error_text(problem: BaseException) -> str:
    """What a task can carry of it: no NUL, nothing that is not Unicode, not without end."""
    text = str(problem) or type(problem).__name__
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()[:LONGEST_ERROR]
