"""A task as it is sent and as it is asked for (contract.md section 3). Shared by the API, exports and imports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, cast

from msgspec import UNSET, Meta, UnsetType

from taskstore.errors import InvalidInput
from taskstore.types import sentences
from taskstore.types.requests import Asked
from taskstore.types.scalars import UniqueFor, UniqueKey, prepare
from taskstore.types.tasks import FAILED_FROM, NAMED, NewTask, Problem
from taskstore.types.tasks import Duplicate as DuplicateAnswer
from taskstore.types.tasks import Task as TaskAnswer

from ..core.operations import Commit, Duplicate, Operation, TaskRecord
from ..core.validation import group_name, is_utf8, validate
from ..managers import limits
from ..models import Task
from .scalars import DataBase64, DataType, Int64, Labels, Priority, ServerSet, Timespec, TimespecAlias


def answer_of(task: Task | TaskRecord, *, with_data: bool = True) -> TaskAnswer:
    """Return a task as it is answered with; without data where somebody may not see it."""
    return TaskAnswer.make(
        id=task.id,
        group=task.group,
        data=bytes(task.data) if with_data else None,
        data_type=task.data_type,
        error=task.error,
        labels=task.labels,
        priority=task.priority,
        origin=task.origin,
        claims=task.claims,
        owner=task.owner,
        available_at_ms=task.available_at_ms,
        created_at_ms=task.created_at_ms,
        unique=task.unique,
        duplicate=isinstance(task, Duplicate),
        ending=task.ending if isinstance(task, Duplicate) else "",
    )


def answer_in_place_of(task: TaskRecord) -> TaskAnswer:
    """Return a task of the answer to a commit as it is sent: perhaps the holder of a key."""
    if isinstance(task, Duplicate) and (task.ending or not task.id):
        # Less than a task: the client fills in the rest.
        return cast("TaskAnswer", DuplicateAnswer(id=task.id or None, ending=task.ending or UNSET))
    return answer_of(task)


class WithData(Asked, frozen=True, kw_only=True):
    """What adds and updates have in common. The members that `NAMED` lists have the names that the store has."""

    data: str | UnsetType = UNSET
    data_base64: DataBase64 | UnsetType = UNSET
    timespec: Timespec | UnsetType = UNSET
    duration: TimespecAlias | UnsetType = UNSET
    error: str | UnsetType = UNSET
    labels: Labels | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    data_type: DataType | UnsetType = UNSET
    unique: UniqueKey | UnsetType = UNSET
    ownerid: ServerSet = UNSET
    origin: ServerSet = UNSET
    claims: ServerSet = UNSET
    created: ServerSet = UNSET

    def problems(self) -> Iterator[Problem]:
        if UNSET not in (self.timespec, self.duration) and self.timespec != self.duration:
            yield "duration", "must equal timespec, for which it is another name"
        if self.data is UNSET:
            return
        if self.data_base64 is not UNSET:
            yield "data_base64", sentences.not_together("data")
        if not is_utf8(self.data):
            yield "data", sentences.VALID_UTF8

    @property
    def timespec_ms(self) -> int:
        return (self.timespec or 0) if self.duration is UNSET else self.duration

    @property
    def given_data(self) -> bytes | None:
        """None: neither `data` nor `data_base64` is given."""
        if self.data is not UNSET:
            return self.data.encode()
        return None if self.data_base64 is UNSET else self.data_base64

    @property
    def given_key(self) -> str | None:
        return None if self.unique is UNSET else self.unique

    @property
    def named(self) -> dict[str, Any]:
        """What it says of the fields that adds and updates have in the same words."""
        return {name: value for name in NAMED if (value := getattr(self, name)) is not UNSET}


class Add(WithData, frozen=True, kw_only=True):
    """A task to add."""

    group: str = ""
    id: Annotated[
        Int64,
        Meta(
            description="The id of a task that this commit deletes: the new task is its successor. Ignored otherwise."
        ),
    ] = 0
    unique_for: UniqueFor = 0

    def every_problem(self) -> Iterator[Problem]:
        """As of a task that is added by itself."""
        yield from self.problems()
        yield from group_name("group", self.group)
        if not any(self.problems()):  # The data would not be bytes.
            yield from problems_of(Commit(owner=0, adds=(self.new_task(),)), below="adds[0].")

    def new_task(self) -> NewTask:
        """A task of its own, whatever its id."""
        return NewTask(
            group=self.group,
            data=self.given_data or b"",
            timespec_ms=self.timespec_ms,
            unique=self.given_key,
            unique_for_ms=self.unique_for,
            **self.named,
        )

    def imported(self) -> NewTask:
        """As a line of a file has it: a dead letter stays one."""
        source = (self.labels or {}).get(FAILED_FROM, "") if self.error else ""
        return replace(self.new_task(), failed_from=source if source != self.group else "")


def problems_of(operation: Operation, below: str = "") -> Iterator[Problem]:
    """What the store says of the values of an operation; `below`: what to leave out before each path."""
    try:
        validate(operation, limits())
    except InvalidInput as invalid:
        yield from ((path.removeprefix(below), " ".join(texts)) for path, texts in invalid.fields.items())


prepare(Add)
