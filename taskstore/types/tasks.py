"""A task and its fields, what programs add to the store and change in it, and why a commit was refused.

Times are milliseconds since the Epoch (UTC), durations are milliseconds, ids are positive 64-bit integers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Self

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from .scalars import GROUP_LENGTH, LABEL_LENGTH, TYPE_LENGTH, DataType, Ids, Int64, Priority, Timespec, prepare


class Ending(StrEnum):
    """Why a task is no longer there. The first six leave a successor (contract.md section 5)."""

    CLAIMED = "claimed"
    RENEWED = "renewed"
    CHANGED = "changed"
    MOVED = "moved"
    GIVEN_BACK = "given back"
    REQUEUED = "requeued"
    DELETED = "deleted"
    PURGED = "purged"


class State(StrEnum):
    """What a task is at a moment. Failed is counted beside the others, not instead."""

    READY = "ready"
    CLAIMED = "claimed"
    EXPIRED = "expired"
    SCHEDULED = "scheduled"
    FAILED = "failed"


class Order(StrEnum):
    """How a claim chooses among the available tasks of the highest priority."""

    RANDOM = "random"
    OLDEST = "oldest"


COMMAND_GROUPS = "commands/"  # How their names begin. Whoever writes there decides what shells run.


ATTEMPTS = "attempts"  # The label by which workers count them; see worker/verdicts.py.


FAILED_FROM = "failed_from"  # The label of a dead letter: the group that it failed in. Only the rules write it.


# How the names of groups end in which jobs and commands are kept that have ended.
RESULTS = {
    "jobs": frozenset({"succeeded", "failed"}),
    "commands": frozenset(
        {"completed", "completed_archive", "failed_archive", "failed_time", "failed_count", "output"}
    ),
}


def holds_results(group: str) -> bool:
    """Whether jobs or commands are kept in this group that have ended. No worker claims from it."""
    kind, _, rest = group.partition("/")
    name, _, end = rest.partition("/")
    return bool(name) and end in RESULTS.get(kind, ())


NOBODY = 0  # The owner that all clients of MassTasker's interface share.


class Kept(StrEnum):
    """What a successor has of the task that it replaces."""

    CONTENT = "content"  # What clients write: it stays unless the change names another value.
    CHAIN = "chain"  # What a chain has: it stays, and only the store goes on with it.
    NOTHING = "nothing"  # The store writes it anew for each id.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskField:
    """A field of a task, by its name in Python and as a column."""

    name: str
    type: Any  # With the limits that are always the same.
    column: str = "bigint"  # Its type in PostgreSQL.
    wire: str = ""  # Its name in JSON; empty: only the store knows it.
    title: str = ""  # Its name where people read it, if that is another one than in JSON.
    kept: Kept = Kept.NOTHING
    limit: str = ""  # The setting that says how large it may be; see Limits in core/validation.py.
    in_trail: bool = True  # Whether the history of an id keeps it.


# In the order in which files and pages show them.
FIELDS = (
    TaskField(name="id", type=Int64, wire="id"),
    TaskField(
        name="group",
        type=Annotated[str, Meta(min_length=1, max_length=GROUP_LENGTH)],
        column="text",
        wire="group",
        kept=Kept.CONTENT,
    ),
    TaskField(name="available_at_ms", type=Timespec, wire="timespec", title="available"),
    TaskField(name="owner", type=Int64, wire="ownerid", title="owner"),
    TaskField(name="priority", type=Priority, column="smallint", wire="priority", kept=Kept.CONTENT),
    TaskField(name="claims", type=int, column="integer", wire="claims", kept=Kept.CHAIN),
    TaskField(name="error", type=str, column="text", wire="error", kept=Kept.CONTENT, limit="error_length"),
    TaskField(
        name="labels",
        type=dict[
            Annotated[str, Meta(max_length=LABEL_LENGTH)],
            Annotated[str, Meta(max_length=LABEL_LENGTH)],
        ],
        column="jsonb",
        wire="labels",
        kept=Kept.CONTENT,
        limit="labels",
        in_trail=False,
    ),
    TaskField(name="origin", type=Int64, wire="origin", kept=Kept.CHAIN),
    TaskField(name="created_at_ms", type=int, wire="created", kept=Kept.CHAIN),
    TaskField(
        name="data",
        type=bytes,
        column="bytea",
        wire="data",
        kept=Kept.CONTENT,
        limit="data_bytes",
        in_trail=False,
    ),
    TaskField(
        name="data_type",
        type=Annotated[DataType, Meta(max_length=TYPE_LENGTH)],
        column="text",
        wire="data_type",
        kept=Kept.CONTENT,
        in_trail=False,
    ),
    TaskField(name="leased_since_ms", type=int),
    TaskField(name="made_at_ms", type=int),
    TaskField(name="made_by_commit", type=Int64),
    TaskField(name="payload", type=Int64, in_trail=False),
)
CONTENT = tuple(each.name for each in FIELDS if each.kept is Kept.CONTENT)
# What adds and updates name, or leave as it is, in the same words everywhere. A group and data are said in ways of
# their own.
NAMED = tuple(name for name in CONTENT if name not in ("group", "data"))
# What no rule looks at and pages show as it is.
PLAIN = tuple(name for name in NAMED if name not in ("error", "labels", "data_type"))


class Origin(NamedTuple):
    """The chain that a task goes on with that was purged and comes back."""

    id: int
    claims: int
    created_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task to add."""

    group: str
    data: bytes = b""
    data_type: str = ""  # The type URL, for data that is a protobuf Any.
    timespec_ms: int = 0  # 0: now. Negative: that long from now. Positive: that very time.
    error: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0  # -100 to 100, larger first.
    id: int = 0  # Of a task that the same commit deletes: this one is its successor.
    origin: Origin | None = None  # Set: it comes back, and goes on with its chain.
    failed_from: str = ""  # Of a dead letter that comes back or is imported: the group that it failed in.
    moving: Change | None = None  # What becomes of the task `id`, if this add is how REST writes a change of its group.

    @classmethod
    def successor_of(cls, task: Any, **changes: Any) -> Self:
        """Return a task that goes on with this one, which has to be deleted with it, as it is but for the changes.

        It is available now, unless a time is among the changes. With `id=0` it is a copy that begins a chain of its
        own. Every copy of a task is made here, so that none leaves a field out.
        """
        return cls(**{"id": task.id, **{name: getattr(task, name) for name in CONTENT}, **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A task to replace by a successor with a new id. What is None stays as it is."""

    id: int
    data: bytes | None = None  # b"" empties it.
    data_type: str | None = None  # None: it stays with the data; new data has none.
    timespec_ms: int = 0  # As in NewTask.
    error: str | None = None  # "" clears it.
    labels: Mapping[str, str] | None = None
    priority: int | None = None
    group: str | None = None  # Another one: the task moves there.
    release: bool = False  # Give the task back: no owner, not leased.
    # The group that a dead letter failed in; empty: it is none any more. None: the rules say.
    failed_from: str | None = None


class Refusal(Struct, frozen=True, kw_only=True):
    """Why nothing was changed: every reason, not the first."""

    changes: Annotated[Ids, Meta(description="Ids of tasks to update that do not exist.")] = ()
    deletes: Annotated[Ids, Meta(description="Ids of tasks to delete that do not exist.")] = ()
    depends: Annotated[Ids, Meta(description="Ids of tasks to depend on that do not exist.")] = ()
    owned: Annotated[Ids, Meta(description="Ids of tasks that are leased to another client.")] = ()
    bugs: Annotated[tuple[str, ...], Meta(description="Texts about invalid parts of the request.")] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.deletes or self.depends or self.owned or self.bugs)


Problem = tuple[str, str]  # The path of the field, and what would be right.


def ids_without_delete(adds: Sequence[NewTask], deletes: Iterable[int]) -> Iterator[Problem]:
    """Ids of adds that the same commit does not delete. Ignoring them would double the task that was to be replaced."""
    if any(add.id for add in adds):
        deleted = frozenset(deletes)
        for place, add in enumerate(adds):
            if add.id and add.id not in deleted:
                yield f"adds[{place}].id", f"must be 0 or a task that this commit deletes: add {add.id} to the deletes"


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task."""

    id: Int64
    group: str
    data_text: Annotated[
        str | UnsetType | None, Meta(description="null if the data is not UTF-8; see data_base64.")
    ] = msgspec.field(name="data")
    available_at_ms: Annotated[int, Meta(description="The available time, in milliseconds since the Epoch.")] = (
        msgspec.field(name="timespec")
    )
    owner: Int64 = msgspec.field(name="ownerid")
    error: str
    labels: dict[str, str]
    priority: int
    origin: Annotated[Int64, Meta(description="The id of the first task of the chain. It never changes.")]
    claims: Annotated[int, Meta(description="The number of claims.")]
    created_at_ms: Annotated[int, Meta(description="When the first task of the chain was added.")] = msgspec.field(
        name="created"
    )
    data_type: DataType = ""
    data_base64: Annotated[str | UnsetType, Meta(description="Present only if data is null.")] = UNSET

    @classmethod
    def make(
        cls,
        *,
        id: int,
        group: str,
        data: bytes | None = b"",
        data_type: str = "",
        error: str = "",
        labels: Mapping[str, str] | None = None,
        priority: int = 0,
        origin: int = 0,
        claims: int = 0,
        owner: int = 0,
        available_at_ms: int = 0,
        created_at_ms: int = 0,
    ) -> Self:
        """Return a task with these bytes as data. `None`: nothing is said of data and type."""
        text, in_base64 = (UNSET, UNSET) if data is None else as_text(data)
        return cls(
            id=id,
            group=group,
            data_text=text,
            available_at_ms=available_at_ms,
            owner=owner,
            error=error,
            labels=dict(labels or {}),
            priority=priority,
            origin=origin,
            claims=claims,
            created_at_ms=created_at_ms,
            data_type="" if data is None else data_type,
            data_base64=in_base64,
        )

    @property
    def data(self) -> bytes:
        """The data; b"" when there is none."""
        return self.data_text.encode() if isinstance(self.data_text, str) else base64.b64decode(self.data_base64 or "")

    @property
    def text(self) -> str:
        """The data as text. Raises UnicodeDecodeError when it is no UTF-8."""
        return self.data_text if isinstance(self.data_text, str) else self.data.decode()

    def json(self) -> Any:
        """Return the value that the data holds. Raises ValueError when it is no JSON."""
        return json.loads(self.data)


def as_text(data: bytes) -> tuple[str | None, str | UnsetType]:
    """Return data as text; what is no UTF-8 in Base64 instead, as the second."""
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode()


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of an update or a claim: the new tasks, or why nothing was changed."""

    tasks: tuple[Task, ...] = ()
    error: Refusal | None = None


class Imported(Struct, frozen=True, kw_only=True):
    """What an import has added."""

    imported: Annotated[int, Meta(description="The number of added tasks.")]
    ids: Annotated[Ids, Meta(description="The ids of the new tasks, in the order of the lines.")]


prepare(Outcome, Imported)
