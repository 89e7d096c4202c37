"""The bodies of requests about tasks and workers. Unknown fields are rejected.

The server builds its operations from them in `tasks_app/wire/requests.py`.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from dataclasses import replace
from typing import Annotated, Any, Self

from msgspec import Meta, Struct, field

from . import sentences
from .progress import Done, ProgressText
from .scalars import (
    GROUP_LENGTH,
    INT64_MAX,
    MOST_WAIT_MS,
    PLAIN,
    ClientText,
    DataBase64,
    DataType,
    Duration,
    GroupInPath,
    GroupName,
    Ids,
    Int64,
    Key,
    Labels,
    Limits,
    MostAtOnce,
    Priority,
    ProcessId,
    Reason,
    ServerSet,
    SomeIds,
    Timespec,
    TimespecAlias,
    UniqueFor,
    UniqueKey,
    Wait,
)
from .sentences import group_name, is_utf8
from .tasks import FAILED_FROM, NAMED, Change, NewTask, Order, Problem

INFO_LENGTH = 10_000
MOST_GROUPS_OF_CLIENT = 1_000
EMPTIED = {"data_type": "", "error": ""}  # By an update that does not give them, beside the data.


class Asked(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A request, or a part of one. Null members are removed before it is parsed, because they count as absent."""

    def problems(self, limits: Limits) -> Iterator[Problem]:
        """Yield the problems that remain although each field has the right type. The server may find more."""
        yield from ()

    def as_written(self, tree: Any) -> Self:
        """Return the request with members of this JSON in which null and large integers have a meaning of their own."""
        return self


class Nothing(Asked, frozen=True):
    """A request without parameters."""


class ById(Asked, frozen=True):
    id: Int64


class ReasonById(Asked, frozen=True):
    id: Int64
    reason: Reason = ""


class ReasonByGroup(Asked, frozen=True):
    name: GroupInPath
    reason: Reason = ""


class Listed(Asked, frozen=True, kw_only=True):
    """Which tasks of a group to list."""

    limit: Annotated[int, Meta(ge=0, le=INT64_MAX, description="How many tasks to return at most; 0 for all.")] = 0
    owned: Annotated[bool, Meta(description="Whether to include tasks that are not available.")] = False
    label: Annotated[
        tuple[str, ...],
        Meta(
            description="NAME:VALUE, or NAME for any value: return only tasks with this label, or, if repeated, with "
            "all of these labels."
        ),
    ] = ()


class StatsRequest(Asked, frozen=True):
    """Of which groups to tell the numbers."""

    group: Annotated[
        tuple[Annotated[str, Meta(max_length=GROUP_LENGTH + 1, pattern=PLAIN)], ...],
        Meta(description="A name, or a prefix followed by *: return only these groups; may be repeated."),
    ] = ()


class GroupRequest(Listed, frozen=True, kw_only=True):
    name: GroupInPath


class GroupByQuery(Listed, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=GROUP_LENGTH, pattern=PLAIN)] | None = None


class TasksRequest(Asked, frozen=True):
    """The ids of tasks."""

    ids: Annotated[SomeIds, Meta(description="In a path, separated by commas.")]


class ImportFile(Asked, frozen=True):
    """Where to import tasks to."""

    group: (
        Annotated[GroupName, Meta(description="Add all tasks to this group, regardless of the group in each line.")]
        | None
    ) = None


class ProgressRequest(Asked, frozen=True, kw_only=True):
    """The progress of a task. It replaces the previous report."""

    id: Int64
    clientid: Int64
    done: Done
    text: ProgressText = ""


class CancelRequest(Asked, frozen=True):
    """The tasks to cancel."""

    ids: Annotated[SomeIds, Meta(description="The present id of each, or the first one of its chain, as of a job.")]
    reason: Reason = ""

    def problems(self, limits: Limits) -> Iterator[Problem]:
        if not 1 <= len(self.ids) <= limits.changes:
            yield "ids", f"must have between 1 and {limits.changes} ids, not {len(self.ids)}"


class CancelledRequest(Asked, frozen=True, kw_only=True):
    """Of which client to list cancelled tasks."""

    clientid: Int64
    after: Annotated[str, Meta(description="The `after` of the previous response: only what came since.")] = ""
    wait: Annotated[
        int, Meta(ge=0, le=MOST_WAIT_MS, description="How long to wait until there is something, in milliseconds.")
    ] = 0


class AskedOperation(Asked, frozen=True, kw_only=True):
    """The common fields of requests that change tasks in one commit."""

    clientid: Int64
    key: Key = ""


# ---- Updates


class WithData(Asked, frozen=True, kw_only=True):
    """The common fields of adds and updates. The members that `NAMED` lists have the names that the store has."""

    data: str | None = None
    data_base64: DataBase64 | None = None
    timespec: Timespec | None = None
    duration: TimespecAlias | None = None
    error: str | None = None
    labels: Labels | None = None
    priority: Priority | None = None
    data_type: DataType | None = None
    unique: UniqueKey | None = None
    ownerid: ServerSet = None
    origin: ServerSet = None
    claims: ServerSet = None
    created: ServerSet = None
    progress: ServerSet = None

    def problems(self, limits: Limits) -> Iterator[Problem]:
        if None not in (self.timespec, self.duration) and self.timespec != self.duration:
            yield "duration", "must equal timespec, for which it is another name"
        if self.data is None:
            return
        if self.data_base64 is not None:
            yield "data_base64", sentences.not_together("data")
        if not is_utf8(self.data):
            yield "data", sentences.VALID_UTF8

    @property
    def timespec_ms(self) -> int:
        return (self.timespec or 0) if self.duration is None else self.duration

    @property
    def given_data(self) -> bytes | None:
        """The data; None if neither `data` nor `data_base64` is given."""
        if self.data is not None:
            return self.data.encode()
        return self.data_base64

    @property
    def named(self) -> dict[str, Any]:
        """The given values of the fields that adds and updates have in the same words."""
        return {name: value for name in NAMED if (value := getattr(self, name)) is not None}


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
    batch: Annotated[Int64, Meta(description="The id of an open batch for the task to join.")] = 0
    unique_group: Annotated[
        str, Meta(description="The group of the key of an imported task, if it is not `group`. Ignored otherwise.")
    ] = ""

    def new_task(self) -> NewTask:
        """Return a task that starts a chain, whatever its id."""
        return NewTask(
            group=self.group,
            data=self.given_data or b"",
            timespec_ms=self.timespec_ms,
            unique=self.unique,
            unique_for_ms=self.unique_for,
            batch=self.batch,
            **self.named,
        )

    def imported(self) -> NewTask:
        """Return the task of a line of a file. A dead letter stays one, and a moved task takes its key where it was."""
        source = (self.labels or {}).get(FAILED_FROM, "") if self.error else ""
        source = source if source != self.group else ""
        return replace(self.new_task(), failed_from=source, unique_group=self.unique_group, batch=0)


class AddOrMove(Add, frozen=True, kw_only=True):
    """A task to add or, with `keep`, to move into this group."""

    keep: Annotated[
        bool,
        Meta(
            description="Move the task `id`, which must be among the `deletes`, into this group. Data (with its type), "
            "error, labels and priority stay unchanged unless they are given; `timespec` means the same as in an "
            "update."
        ),
    ] = False
    release: Annotated[bool, Meta(description="Only with `keep`. Give the task back: owner 0, not leased.")] = False

    def problems(self, limits: Limits) -> Iterator[Problem]:
        yield from super().problems(limits)
        if self.release and not self.keep:
            yield "release", "must be given together with keep: a new task has no lease to give back"

    def in_commit(self, deletes: Container[int]) -> NewTask:
        """Return the successor of the task `id` if that is among the deletes; otherwise the id is ignored."""
        new = self.new_task()
        if self.id not in deletes:
            return new
        return replace(new, id=self.id, moving=self.change() if self.keep else None)

    def change(self) -> Change:
        return Change(
            id=self.id,
            group=self.group or None,
            data=self.given_data,
            timespec_ms=self.timespec_ms,
            release=self.release,
            unique=self.unique,
            **self.named,
        )


class Update(WithData, frozen=True, kw_only=True):
    """A task to replace with a successor that has a new id. Its group stays; use an add with `keep` to move it."""

    id: Int64
    keep: Annotated[
        bool,
        Meta(
            description="Data (with its type) and error stay unchanged unless they are given. Without `keep` an "
            "update empties those that are not given."
        ),
    ] = False
    release: Annotated[bool, Meta(description="Give the task back: owner 0, not leased.")] = False
    group: ServerSet = None
    unique_group: ServerSet = None
    batch: ServerSet = None

    def change(self) -> Change:
        data, named = self.given_data, self.named
        if not self.keep:
            data, named = data or b"", EMPTIED | named
        return Change(
            id=self.id, data=data, timespec_ms=self.timespec_ms, release=self.release, unique=self.unique, **named
        )


class UpdateRequest(AskedOperation, frozen=True, kw_only=True):
    """One all-or-nothing change, on the condition that all `depends` exist."""

    adds: tuple[AddOrMove, ...] = ()
    updates: tuple[Update, ...] = ()
    deletes: Ids = ()
    depends: Ids = ()

    def problems(self, limits: Limits) -> Iterator[Problem]:
        for kind, items in (("adds", self.adds), ("updates", self.updates)):
            for place, item in enumerate(items):
                for name, right in item.problems(limits):
                    yield f"{kind}[{place}].{name}", right
        if not any(add.keep for add in self.adds):
            return
        deletes, taken = frozenset(self.deletes), set()
        for place, add in enumerate(self.adds):
            if add.keep and (add.id not in deletes or add.id in taken):
                yield f"adds[{place}].keep", "must be given together with an id that is in deletes and in no other add"
            taken.add(add.id)


# ---- Claims


class ClaimRequest(AskedOperation, frozen=True, kw_only=True):
    """Take available tasks of a group: they are replaced by successors that are leased to the client."""

    group: str | None = None
    groups: Annotated[
        tuple[str, ...],
        Meta(description="Several groups instead of `group`: higher priority first, then a fair share for each group."),
    ] = ()
    wait: Wait = 0
    duration: Duration = 60_000
    depends: Ids = ()
    limit: MostAtOnce = 1
    order: Order = Order.RANDOM

    @property
    def wanted(self) -> tuple[str, ...]:
        """The groups that it names."""
        return self.groups if self.group is None else (self.group,)

    def problems(self, limits: Limits) -> Iterator[Problem]:
        if self.group is not None and self.groups:
            yield "groups", sentences.not_together("group")


# ---- Workers


class ClientRequest(Asked, frozen=True, kw_only=True):
    """A worker's report about itself."""

    clientid: Int64
    name: ClientText = ""
    host: ClientText = ""
    pid: ProcessId | None = None
    groups: Annotated[tuple[str, ...], Meta(description="The groups that it claims from.")] = ()
    version: ClientText = ""
    info: Annotated[
        dict[str, Any],
        Meta(
            description="Any other information, as an object. With `stopped`: true the client has sent its last "
            "report and is no longer listed."
        ),
    ] = field(default_factory=dict)

    def problems(self, limits: Limits) -> Iterator[Problem]:
        if len(self.groups) > MOST_GROUPS_OF_CLIENT:
            yield "groups", sentences.at_most(MOST_GROUPS_OF_CLIENT, "names", len(self.groups))
            return
        for place, group in enumerate(self.groups):
            yield from group_name(f"groups[{place}]", group)
        if not is_utf8(self.info_as_text):
            yield "info", sentences.VALID_UTF8
        elif len(self.info_as_text) > INFO_LENGTH:
            yield "info", sentences.at_most(INFO_LENGTH, "characters as JSON", len(self.info_as_text))

    @property
    def info_as_text(self) -> str:
        return json.dumps(self.info, ensure_ascii=False)
