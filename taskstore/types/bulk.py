"""Bulk operations: their preview, their progress, and the outcome for each task."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, defstruct, field

from .bulk_actions import ACTIONS, OPTIONS, WORDS, Kind
from .scalars import At, Ids, Int64, prepare

KINDS = {Kind.GROUP: str, Kind.TEXT: str, Kind.FLAG: bool, Kind.PRIORITY: int, Kind.TIME: int, Kind.MINUTES: int}


class OperationState(StrEnum):
    """The state of a bulk operation."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


class ItemOutcome(StrEnum):
    """The outcome of a bulk operation for one task."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class WithClaimed(StrEnum):
    """Whether to change leased tasks."""

    SKIP = "skip"
    TAKE = "take"


# Derived from the list of actions.
if TYPE_CHECKING:
    BulkVerb = str
    OperationVerb = str
    BulkParameters = Any
else:
    BulkVerb = StrEnum("BulkVerb", {name.upper(): name for name in ACTIONS}, module=__name__)
    BulkVerb.__doc__ = "The bulk operations. To undo one, use the undo link of its operation."
    OperationVerb = StrEnum("OperationVerb", {name.upper(): name for name in WORDS}, module=__name__)
    OperationVerb.__doc__ = "The kind of a bulk operation."
    BulkParameters = defstruct(
        "BulkParameters",
        [
            *[(option.name, KINDS[option.kind] | type(option.default)) for option in OPTIONS.values()],
            ("claimed", WithClaimed),
        ],
        namespace={"__doc__": "The options of a bulk operation, as in its request."},
        module=__name__,
        frozen=True,
        kw_only=True,
    )


class ByState(Struct, frozen=True, kw_only=True):
    """Tasks by state. They add up to the count."""

    ready: int
    claimed: int
    expired: int
    scheduled: int


class Target(Struct, frozen=True, kw_only=True):
    """A group to which a requeue moves tasks."""

    group: str
    count: Annotated[int, Meta(description="Tasks that are not claimed.")]
    claimed: Annotated[int, Meta(description="Claimed tasks, which are included if `claimed` is take.")]


class Preview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tasks that a bulk operation would change at this moment."""

    count: Annotated[int, Meta(description="Send it as `expected`.")]
    by_state: ByState
    claimed: Annotated[int, Meta(description="Claimed tasks: skipped unless `claimed` is take.")]
    ready_already: Annotated[
        int, Meta(description="Ready tasks that are neither failed nor dead letters; a requeue skips them.")
    ]
    group: Annotated[str, Meta(description="The group of all these tasks; empty for several groups or no task.")]
    samples: Annotated[Ids, Meta(description="A few of the ids.")]
    bound: Annotated[Int64, Meta(description="Send it unchanged: tasks added later are not affected.")]
    as_of: Annotated[int, Meta(description="Send it unchanged: the time of the preview, in ms.")]
    to_type: Annotated[str, Meta(description="The text to send as `typed`; empty if none is needed.")]
    targets: Annotated[
        tuple[Target, ...] | None, Meta(description="For a requeue only: the target groups, largest first.")
    ] = None
    ended: Annotated[int | None, Meta(description="For a requeue only: finished commands, which it skips.")] = None


class Links(Struct, frozen=True, kw_only=True):
    """The URLs of the operation and of its actions."""

    operation: str
    items: str
    cancel: str
    undo: str


class Operation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bulk operation and its progress."""

    id: Int64
    verb: OperationVerb
    selection: Annotated[str, Meta(description="In words.")]
    group: Annotated[str, Meta(description="The group of all its tasks; empty for several groups or none.")]
    parameters: BulkParameters
    state: OperationState
    expected: int
    done: int
    skipped: int
    failed: int
    gone: Annotated[
        int,
        Meta(description="Tasks of the preview that others changed or deleted before the operation reached them."),
    ]
    by: Annotated[str, Meta(description="A user's name, or `token:` and the name of a token.")]
    reason: str
    began_at_ms: At = field(name="began")
    ended_at_ms: Annotated[int | None, Meta(description="Milliseconds since the Epoch; null while it runs.")] = field(
        name="ended"
    )
    cancelled_by: Annotated[str, Meta(description="Empty if it was not cancelled.")]
    undoes: Annotated[Int64 | None, Meta(description="The operation that this one undoes; null if it is not an undo.")]
    links: Links
    reasons: Annotated[
        dict[str, int] | None, Meta(description="The number of skipped tasks by reason. Not in the list.")
    ] = None
    undoable: Annotated[bool | None, Meta(description="Not in the list.")] = None
    not_undoable: Annotated[
        str | None, Meta(description="Why it can't be undone; otherwise empty. Not in the list.")
    ] = None


class OperationsPage(Struct, frozen=True, kw_only=True):
    """Bulk operations, newest first."""

    operations: tuple[Operation, ...]
    after: Annotated[Int64 | None, Meta(description="Send it as `after` for the next page; null on the last page.")]


class Item(Struct, frozen=True, kw_only=True):
    """The outcome of a bulk operation for one task."""

    origin: Int64
    task: Annotated[Int64, Meta(description="The id that the task had; 0 if an undo restored it.")]
    outcome: ItemOutcome
    why: Annotated[str, Meta(description="Why the task was skipped or failed.")]


class ItemsPage(Struct, frozen=True, kw_only=True):
    """Tasks of a bulk operation, sorted by origin. They are kept for as long as it can be undone."""

    items: tuple[Item, ...]
    after: Annotated[
        Int64 | None, Meta(description="Send it as `after` for the next page; null if there are no more for now.")
    ]


prepare(Preview, OperationsPage, ItemsPage)
