"""What crosses the wire: the bodies of requests and answers, as types (contract.md sections 3 to 5).

A member that is null never arrives here: it counts as absent.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from ..history import Chain
from ..instance import INSTANCE
from ..models import EndedTask, Task
from ..operations import Change, Claim, Commit, Ending, GroupScope, NewTask, Operation, Order, Refusal
from ..validation import INT64_MAX, INT64_MIN, LATEST_MS, MOST_CLAIMED, MOST_PRIORITY, Problem, is_utf8

Int64 = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Ids = tuple[Int64, ...]
Timespec = Annotated[
    int,
    Meta(
        ge=-(LATEST_MS // 2),
        le=LATEST_MS,
        description="Milliseconds. 0: now. Negative: that long from now. Positive: that very time since the Epoch.",
    ),
]
Duration = Annotated[int, Meta(ge=INT64_MIN, le=LATEST_MS // 2, description="Of the lease, in milliseconds.")]
MostAtOnce = Annotated[int, Meta(ge=1, le=MOST_CLAIMED, description="How many at most at once.")]
Priority = Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY, description="Larger first.")]
Labels = Annotated[dict[str, str], Meta(description="Text to text, at most 64.")]
DataType = Annotated[str, Meta(description="The type URL, for data that is a protobuf Any.")]
DataBase64 = Annotated[bytes, Meta(description="In place of `data`, for data that is not UTF-8.")]
ServerSet = Annotated[Any, Meta(description="Set by the server; accepted and ignored.")]

# ---- What is asked


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a request."""

    def problems(self) -> Iterator[Problem]:
        """What is wrong though each field has the right type: by the path of the field."""
        yield from ()


class WithData(Asked, frozen=True, kw_only=True):
    """What adds and updates have in common."""

    data: str | UnsetType = UNSET
    data_base64: DataBase64 | UnsetType = UNSET
    timespec: Timespec = 0
    ownerid: ServerSet = UNSET
    origin: ServerSet = UNSET
    claims: ServerSet = UNSET
    created: ServerSet = UNSET

    def problems(self) -> Iterator[Problem]:
        if self.data is UNSET:
            return
        if self.data_base64 is not UNSET:
            yield "data_base64", "either data or data_base64, not both"
        if not is_utf8(self.data):
            yield "data", "text that can be written as UTF-8: it holds a lone surrogate"

    @property
    def payload(self) -> bytes:
        if self.data is not UNSET:
            return self.data.encode()
        return b"" if self.data_base64 is UNSET else self.data_base64


class Add(WithData, frozen=True, kw_only=True):
    """A task to add."""

    group: str = ""
    error: str = ""
    labels: Labels = field(default_factory=dict)
    priority: Priority = 0
    data_type: DataType = ""
    id: Annotated[
        Int64,
        Meta(description="Of a task that the same commit deletes: this one is its successor. Else ignored."),
    ] = 0

    def new_task(self) -> NewTask:
        return NewTask(
            group=self.group,
            data=self.payload,
            data_type=self.data_type,
            timespec_ms=self.timespec,
            error=self.error,
            labels=self.labels,
            priority=self.priority,
            id=self.id,
        )


class Update(WithData, frozen=True, kw_only=True):
    """A task to replace by a successor with a new id. Its group stays."""

    id: Int64
    error: str | UnsetType = UNSET
    labels: Labels | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    data_type: DataType | UnsetType = UNSET
    keep: Annotated[bool, Meta(description="Data, type and error stay as they are.")] = False
    release: Annotated[bool, Meta(description="Give the task back: owner 0, not leased.")] = False
    group: ServerSet = UNSET

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.keep:
            for name in ("data", "data_base64", "data_type", "error"):
                if getattr(self, name) is not UNSET:
                    yield name, "absent beside keep, which leaves data, type and error as they are"

    def change(self) -> Change:
        return Change(
            id=self.id,
            data=self.payload,
            data_type=self.data_type or "",
            timespec_ms=self.timespec,
            error=self.error or "",
            labels=None if self.labels is UNSET else self.labels,
            priority=None if self.priority is UNSET else self.priority,
            keep_data=self.keep,
            keep_error=self.keep,
            release=self.release,
        )


class AskedOperation(Asked, frozen=True, kw_only=True):
    """What an update and a claim have in common: they stand for an operation of the store."""

    clientid: Int64

    def operation(self, scope: GroupScope) -> Operation:
        raise NotImplementedError


class UpdateRequest(AskedOperation, frozen=True, kw_only=True):
    """One all-or-nothing change, under the condition that all `depends` exist."""

    adds: tuple[Add, ...] = ()
    updates: tuple[Update, ...] = ()
    deletes: Ids = ()
    depends: Ids = ()

    def problems(self) -> Iterator[Problem]:
        for kind, items in (("adds", self.adds), ("updates", self.updates)):
            for place, item in enumerate(items):
                for name, text in item.problems():
                    yield f"{kind}[{place}].{name}", text

    def operation(self, scope: GroupScope) -> Operation:
        return Commit(
            owner=self.clientid,
            adds=tuple(add.new_task() for add in self.adds),
            updates=tuple(update.change() for update in self.updates),
            deletes=self.deletes,
            depends=self.depends,
            scope=scope,
        )


class ClaimRequest(AskedOperation, frozen=True, kw_only=True):
    """Take available tasks of a group: they are replaced by successors that are leased to the client."""

    group: str
    duration: Duration = 60_000
    depends: Ids = ()
    limit: MostAtOnce = 1
    order: Order = Order.RANDOM

    def operation(self, scope: GroupScope) -> Operation:
        return Claim(
            group=self.group,
            owner=self.clientid,
            duration_ms=self.duration,
            limit=self.limit,
            order=self.order,
            depends=self.depends,
            scope=scope,
        )


class TasksRequest(Asked, frozen=True, kw_only=True):
    """The tasks of these ids, for more of them than fit into an address."""

    ids: Ids


# ---- What is answered


class TaskAnswer(Struct, frozen=True, kw_only=True):
    """A task."""

    id: Int64
    group: str
    data: Annotated[str | None, Meta(description="null: it is not UTF-8; see data_base64.")]
    timespec: Annotated[int, Meta(description="Available from then on; milliseconds since the Epoch.")]
    ownerid: Int64
    error: str
    labels: dict[str, str]
    priority: int
    origin: Annotated[Int64, Meta(description="The id of the first task of the chain. It never changes.")]
    claims: Annotated[int, Meta(description="How often it was claimed.")]
    created: Annotated[int, Meta(description="When the first task of the chain was added.")]
    data_type: DataType | UnsetType = UNSET
    data_base64: Annotated[str | UnsetType, Meta(description="Only when data is null.")] = UNSET

    @classmethod
    def of(cls, task: Task) -> TaskAnswer:
        data, data_base64 = _shown(bytes(task.data))
        return cls(
            id=task.id,
            group=task.group,
            data=data,
            timespec=task.available_at_ms,
            ownerid=task.owner,
            error=task.error,
            labels=task.labels,
            priority=task.priority,
            origin=task.origin,
            claims=task.claims,
            created=task.created_at_ms,
            data_type=task.data_type or UNSET,
            data_base64=data_base64,
        )


def _shown(data: bytes) -> tuple[str | None, str | UnsetType]:
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode()


class Refused(Struct, frozen=True, kw_only=True):
    """Why nothing was changed: every reason, not the first."""

    changes: Annotated[Ids, Meta(description="Not there to be updated.")]
    deletes: Annotated[Ids, Meta(description="Not there to be deleted.")]
    depends: Annotated[Ids, Meta(description="Not there.")]
    owned: Annotated[Ids, Meta(description="Not yet available, and another client's.")]
    bugs: Annotated[tuple[str, ...], Meta(description="What makes no sense.")]

    @classmethod
    def of(cls, refusal: Refusal) -> Refused:
        return cls(
            changes=refusal.changes,
            deletes=refusal.deletes,
            depends=refusal.depends,
            owned=refusal.owned,
            bugs=refusal.bugs,
        )


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of an update or a claim: the new tasks, or why nothing was changed."""

    tasks: tuple[TaskAnswer, ...] = ()
    error: Refused | None = None


class Problems(Struct, frozen=True, kw_only=True):
    """The request is not what is written here: what would be right, by the path of the field."""

    detail: str
    errors: dict[str, list[str]]


class Failure(Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    detail: str
    code: str | UnsetType = UNSET


class Step(Struct, frozen=True, kw_only=True):
    """A task under one of its ids, and what became of that."""

    id: Int64
    group: str
    timespec: int
    ownerid: Int64
    error: str
    priority: int
    claims: int
    made: Annotated[int, Meta(description="When this id was made.")]
    made_by_commit: Int64
    ended: Annotated[End | None, Meta(description="null: it is still there.")]

    @classmethod
    def of(cls, task: Task | EndedTask) -> Step:
        return cls(
            id=task.id,
            group=task.group,
            timespec=task.available_at_ms,
            ownerid=task.owner,
            error=task.error,
            priority=task.priority,
            claims=task.claims,
            made=task.made_at_ms,
            made_by_commit=task.made_by_commit,
            ended=End.of(task) if isinstance(task, EndedTask) else None,
        )


class End(Struct, frozen=True, kw_only=True):
    """What became of an id that is no longer there."""

    at: int
    commit: Annotated[Int64, Meta(description="The commit that ended it.")]
    clientid: Annotated[Int64, Meta(description="Whose commit or claim it was.")]
    how: Ending
    successor: Annotated[Int64 | None, Meta(description="null: that was the end of the chain.")]
    operator: Annotated[str, Meta(description="Empty: a worker did it.")]
    reason: str

    @classmethod
    def of(cls, ended: EndedTask) -> End:
        return cls(
            at=ended.ended_at_ms,
            commit=ended.ended_by_commit,
            clientid=ended.ended_by,
            how=Ending(ended.ending),
            successor=ended.successor,
            operator=ended.operator,
            reason=ended.reason,
        )


class HistoryAnswer(Struct, frozen=True, kw_only=True):
    """A task under all the ids it ever had, the oldest first."""

    id: Annotated[Int64, Meta(description="The id that was asked for.")]
    origin: Int64
    created: Annotated[int, Meta(description="When the first task of the chain was added.")]
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, task_id: int, chain: Chain) -> HistoryAnswer:
        entries: list[Task | EndedTask] = [*chain.ended]
        if chain.living:
            entries.append(chain.living)
        return cls(
            id=task_id,
            origin=chain.origin,
            created=entries[0].created_at_ms,
            steps=tuple(map(Step.of, entries)),
        )


class Health(Struct, frozen=True, kw_only=True):
    """The server process lives."""

    status: str = "ok"
    instance: Annotated[str, Meta(description="Another one after each start, and in each process.")] = INSTANCE
