"""Tasks, the parts of a commit, and the reasons for which a commit is refused.

Times are milliseconds since the Epoch (UTC), durations are milliseconds, ids are positive 64-bit integers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Annotated, Any, NamedTuple, Self

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from .progress import Progress
from .scalars import (
    GROUP_LENGTH,
    KEY_LENGTH,
    LABEL_LENGTH,
    TYPE_LENGTH,
    DataType,
    Ids,
    Int64,
    Priority,
    Timespec,
    UniqueKey,
    prepare,
)


class Ending(StrEnum):
    """How a task ended.

    It has a successor, unless it was deleted or purged, or cancelled and is neither a job nor a command.
    """

    CLAIMED = "claimed"
    RENEWED = "renewed"
    CHANGED = "changed"
    MOVED = "moved"
    GIVEN_BACK = "given back"
    REQUEUED = "requeued"
    DELETED = "deleted"
    PURGED = "purged"
    CANCELLED = "cancelled"


class State(StrEnum):
    """The state of a task at a given moment: each task is in exactly one.

    A leased task is claimed or expired, also with an error. Of the others, a task with an error is retrying, unless it
    has failed for good; records of jobs and commands are finished or failed; the rest is ready or scheduled.
    """

    READY = "ready"
    CLAIMED = "claimed"
    EXPIRED = "expired"
    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    FAILED = "failed"
    FINISHED = "finished"


class Standing(IntEnum):
    """What a task that is not leased is by its content alone; the states of an open one follow from the time."""

    OPEN = 0
    FINISHED = 1
    RETRYING = 2
    FAILED = 3


class Order(StrEnum):
    """How a claim chooses among the available tasks of the highest priority."""

    RANDOM = "random"
    OLDEST = "oldest"


COMMAND_GROUPS = "commands/"  # The prefix of their names. Write access to them is access to the workers' shells.


ATTEMPTS = "attempts"  # The label in which workers count attempts; see worker/functions.py.


FAILED_FROM = "failed_from"  # The label of a dead letter with the group in which it failed. Only the rules write it.


# Labels that the store and its workers set, which don't count towards the limit: a task that has as many of its own as
# it may have can still come from a schedule, fail, and be retried.
STORES_LABELS = frozenset(
    {
        *(ATTEMPTS, FAILED_FROM, "after_batch", "schedule", "due", "rights_of"),
        *("function", "unknown_function", "result_for", "result_place"),
    }
)


# The last part of the names of groups with finished jobs and commands.
RESULTS = {
    "jobs": frozenset({"succeeded", "failed", "cancelled"}),
    "commands": frozenset(
        {"completed", "completed_archive", "failed_archive", "failed_time", "failed_count", "cancelled", "output"}
    ),
}


# Of these, the names where what has failed for good stays.
FAILED_FOR_GOOD = frozenset({"failed", "failed_time", "failed_count"})


def standing_of(group: str, error: str, labels: Mapping[str, str]) -> Standing:
    """Return the standing of a task with this content."""
    if holds_results(group):
        return Standing.FAILED if group.rpartition("/")[2] in FAILED_FOR_GOOD else Standing.FINISHED
    if FAILED_FROM in labels:
        return Standing.FAILED
    return Standing.RETRYING if error else Standing.OPEN


def holds_results(group: str) -> bool:
    """Whether the group contains ended jobs or commands, from which no worker claims."""
    if not group.startswith(("jobs/", "commands/")):  # Asked for each of very many groups.
        return False
    kind, _, rest = group.partition("/")
    name, _, end = rest.partition("/")
    return bool(name) and end in RESULTS.get(kind, ())


NOBODY = 0  # The owner shared by all clients of the MassTasker interface.


class Kept(StrEnum):
    """How a successor inherits a field."""

    CONTENT = "content"  # Written by clients; inherited unless the change sets it.
    CHAIN = "chain"  # Inherited, and updated only by the store.
    NOTHING = "nothing"  # Not inherited: the store sets it for each id.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskField:
    """A field of a task, by its name in Python and as a column."""

    name: str
    type: Any  # With its fixed limits.
    column: str = "bigint"  # Its type in PostgreSQL.
    wire: str = ""  # Its name in JSON; empty: internal to the store.
    title: str = ""  # Its name for people, if it differs from that in JSON.
    kept: Kept = Kept.NOTHING
    limit: str = ""  # The setting of its maximum size; see Limits in scalars.py.
    in_trail: bool = True  # Whether the history of an id contains it.


# In the order of files and pages.
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
        type=dict[Annotated[str, Meta(max_length=LABEL_LENGTH)], Annotated[str, Meta(max_length=LABEL_LENGTH)]],
        column="jsonb",
        wire="labels",
        kept=Kept.CONTENT,
        limit="labels",
        in_trail=False,
    ),
    TaskField(name="origin", type=Int64, wire="origin", kept=Kept.CHAIN),
    TaskField(name="created_at_ms", type=int, wire="created", kept=Kept.CHAIN),
    TaskField(
        name="data", type=bytes, column="bytea", wire="data", kept=Kept.CONTENT, limit="data_bytes", in_trail=False
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
    TaskField(
        name="unique",
        type=Annotated[str, Meta(max_length=KEY_LENGTH)],
        column="text",
        wire="unique",
        kept=Kept.CHAIN,
        in_trail=False,
    ),
    TaskField(name="standing", type=Standing, column="smallint", in_trail=False),
    TaskField(name="batch", type=Int64, wire="batch", kept=Kept.CHAIN, in_trail=False),
)
CONTENT = tuple(each.name for each in FIELDS if each.kept is Kept.CONTENT)
# The fields that adds and updates set in the same way everywhere, unlike the group and the data.
NAMED = tuple(name for name in CONTENT if name not in ("group", "data"))
# The fields without rules, which pages show unchanged.
PLAIN = tuple(name for name in NAMED if name not in ("error", "labels", "data_type"))


class Origin(NamedTuple):
    """The chain that a purged task continues when it is restored."""

    id: int
    claims: int
    created_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task to add.

    `timespec_ms`: when it becomes available. 0: now; negative: that many milliseconds from now; positive: milliseconds
    since the Epoch. `priority`: -100 to 100, larger first. `data_type`: the type URL of data that is a
    protobuf Any. `id`: a task that the same commit deletes, whose successor this task becomes. `unique`: a key of 1 to
    255 characters. If another task of the group holds this key, nothing is added. `unique_for_ms`: how long
    after the add the key stays reserved even if the task ends, up to 30 days. `batch`: the id of an open batch that
    the task joins; 0: none. The other fields are set by the store.
    """

    group: str
    data: bytes = b""
    data_type: str = ""
    timespec_ms: int = 0
    error: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    id: int = 0
    unique: str | None = None
    unique_for_ms: int = 0
    origin: Origin | None = None  # The chain of a restored task.
    failed_from: str = ""  # The group in which a restored or imported dead letter failed.
    at_ms: int | None = None  # In place of `timespec_ms`: a time before 1970, as only messages of MassTasker have.
    unique_group: str = ""  # The group of the key of a restored or imported task, if it is not `group`.
    batch: int = 0
    moving: Change | None = None  # The change of the task `id`, if this add is REST's form of a change of its group.

    @property
    def key(self) -> tuple[str, str] | None:
        """Return the group and the key that the task would hold if it is not a successor; None without a key."""
        # A dead letter in a file that does not say more holds a key of the group in which it failed.
        return (self.unique_group or self.failed_from or self.group, self.unique) if self.unique else None

    @classmethod
    def successor_of(cls, task: Any, **changes: Any) -> Self:
        """Return a successor of a task, which must be deleted in the same commit, with these fields changed.

        It is available now unless `timespec_ms` is given. With `id=0` it is a copy that starts a new chain. Make every
        copy of a task here, so that no field is forgotten.
        """
        return cls(**{"id": task.id, **{name: getattr(task, name) for name in CONTENT}, **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An update: replaces a task with a successor with a new id. Fields that are None stay unchanged.

    `timespec_ms`: as in NewTask. `error`: "" clears it. `group`: moves the task. `release`: gives the task back, so
    that it has no owner and is not leased. `data_type`: without it, new data has no type. `unique`: must be the key of
    the task, because a successor keeps its key.
    """

    id: int
    data: bytes | None = None
    data_type: str | None = None
    timespec_ms: int = 0
    error: str | None = None
    labels: Mapping[str, str] | None = None
    priority: int | None = None
    group: str | None = None
    release: bool = False
    unique: str | None = None
    # The group in which a dead letter failed; empty: no dead letter any more. None: the rules decide.
    failed_from: str | None = None


class Refusal(Struct, frozen=True, kw_only=True):
    """The reasons why nothing was changed."""

    changes: Annotated[Ids, Meta(description="Tasks to update that do not exist.")] = ()
    deletes: Annotated[Ids, Meta(description="Tasks to delete that do not exist.")] = ()
    depends: Annotated[Ids, Meta(description="Required tasks that do not exist.")] = ()
    owned: Annotated[Ids, Meta(description="Tasks leased to another client.")] = ()
    bugs: Annotated[tuple[str, ...], Meta(description="Invalid parts of the request.")] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.deletes or self.depends or self.owned or self.bugs)


Problem = tuple[str, str]  # The path of a field and the message about it.


def ids_without_delete(adds: Sequence[NewTask], deletes: Iterable[int]) -> Iterator[Problem]:
    """Yield problems for adds with an id that the commit does not delete, which would duplicate that task."""
    if any(add.id for add in adds):
        deleted = frozenset(deletes)
        for place, add in enumerate(adds):
            if add.id and add.id not in deleted:
                yield f"adds[{place}].id", f"must be 0 or a task that this commit deletes: add {add.id} to the deletes"


# No garbage collection has to look into it: it is in no circle of references.
class Task(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A task as the server returns it. It never changes: an update creates a successor with a new id."""

    id: Int64
    group: str
    data_text: Annotated[str | UnsetType | None, Meta(description="null if it is not UTF-8; see data_base64.")] = (
        msgspec.field(name="data")
    )
    available_at_ms: Annotated[int, Meta(description="When it becomes available; milliseconds since the Epoch.")] = (
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
    progress: Annotated[
        Progress | None,
        Meta(description="The progress that its owner reported, if any. Only for tasks requested by id."),
    ] = None
    unique: Annotated[UniqueKey, Meta(description="The key that the task holds, if any.")] = ""
    unique_group: Annotated[
        str, Meta(description="The group of the key, which the add named. Only in exports, of tasks in other groups.")
    ] = ""
    batch: Annotated[Int64, Meta(description="The batch that the task belongs to, if any.")] = 0
    duplicate: Annotated[
        bool,
        Meta(
            description="true if the key of an add was taken: nothing was added, and this is the task that holds "
            "the key. If that task has ended, its other fields are absent. If the token can't access it, its id is "
            "null. The data of a task that is there several times comes once."
        ),
    ] = False
    ending: Annotated[str, Meta(description="How the duplicate ended, if it has.")] = ""

    @classmethod
    def make(cls, id: int, **members: Any) -> Self:
        """Return a task with these members, by their names in JSON. The others are empty."""
        texts, numbers = ("group", "data", "error"), ("timespec", "ownerid", "priority", "origin", "claims", "created")
        blank = {**dict.fromkeys(texts, ""), **dict.fromkeys(numbers, 0), "labels": {}}
        return msgspec.convert({**blank, **members, "id": id}, cls)

    @property
    def data(self) -> bytes:
        """The data as bytes; b"" if there is none."""
        return self.data_text.encode() if isinstance(self.data_text, str) else base64.b64decode(self.data_base64 or "")

    @property
    def text(self) -> str:
        """The data as text. Raises UnicodeDecodeError if it is not UTF-8."""
        return self.data_text if isinstance(self.data_text, str) else self.data.decode()

    def json(self) -> Any:
        """Parse the data as JSON. Raises ValueError if it is not JSON."""
        return json.loads(self.data)


def answer_of(
    stored: Any, *, with_data: bool = True, progress: Progress | None = None, ending: str | None = None
) -> Task:
    """Return the task of a row or a record of the store, without data for those who may not see it.

    `ending`: how a duplicate has ended, "" if it has not; None: it is no duplicate.
    """
    text, in_base64 = as_text(bytes(stored.data)) if with_data else (UNSET, UNSET)
    return Task(
        id=stored.id,
        group=stored.group,
        data_text=text,
        data_base64=in_base64,
        data_type=stored.data_type if with_data else "",
        error=stored.error,
        labels=dict(stored.labels),
        priority=stored.priority,
        origin=stored.origin,
        claims=stored.claims,
        owner=stored.owner,
        available_at_ms=max(stored.available_at_ms, 1),  # Sent back, less would mean another time.
        created_at_ms=stored.created_at_ms,
        progress=progress,
        unique=stored.unique,
        batch=stored.batch,
        duplicate=ending is not None,
        ending=ending or "",
    )


def as_text(data: bytes) -> tuple[str | None, str | UnsetType]:
    """Return data as text, or, if it is not UTF-8, None and its Base64."""
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode()


ESCAPED = b'"\\\b\f\n\r\t'  # In JSON each of them takes two bytes; the other control characters take six.
CONTROL = bytes(set(range(32)).difference(ESCAPED))


def json_size(data: bytes) -> int:
    """Return how many bytes data takes in JSON, with the names of its fields."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return len('"data":null,"data_base64":""') + (len(data) + 2) // 3 * 4
    plain, printable = len(data.translate(None, ESCAPED)), len(data.translate(None, CONTROL))
    return len('"data":""') + len(data) + (len(data) - plain) + 5 * (len(data) - printable)


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of an update or a claim: the new tasks, or why nothing was changed."""

    tasks: tuple[Task, ...] = ()
    error: Refusal | None = None
    truncated: Annotated[
        bool | UnsetType,
        Meta(description="true if a claim took fewer tasks than it could, so that the response is not too large."),
    ] = UNSET
    gone: Annotated[
        tuple[Int64, ...] | UnsetType,
        Meta(description="Of a repeated claim: the ids of the tasks that it took and that are not there any more."),
    ] = UNSET


class Duplicate(Struct, frozen=True, kw_only=True):
    """All that is told of the task that holds a key if it has ended, or if the client can't see it."""

    id: int | None
    duplicate: bool = True
    ending: str | UnsetType = UNSET


class Cancelled(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Cancelled tasks."""

    ids: Annotated[Ids, Meta(description="The last id of each.")]
    after: Annotated[str, Meta(description="Of a list: send it as `after` to learn of later ones only.")] = ""


class Imported(Struct, frozen=True, kw_only=True):
    """The result of an import."""

    imported: Annotated[int, Meta(description="The number of new tasks.")]
    ids: Annotated[Ids, Meta(description="Their ids, in the order of the lines.")]
    skipped: Annotated[int, Meta(description="The number of lines skipped because their keys were taken.")] = 0


prepare(Outcome, Duplicate)  # Also used by processes that know no endpoints.
