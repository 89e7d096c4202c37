"""Operations on many tasks: their preview, how far they have come, and what became of each task."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, defstruct, field

from .bulk_actions import ACTIONS, OPTIONS, WORDS, Kind
from .scalars import At, Ids, Int64, prepare

KINDS = {Kind.GROUP: str, Kind.TEXT: str, Kind.FLAG: bool, Kind.PRIORITY: int, Kind.TIME: int, Kind.MINUTES: int}


class OperationState(StrEnum):
    """How far an operation has come."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


class ItemOutcome(StrEnum):
    """What became of a task of an operation."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class WithClaimed(StrEnum):
    """What to do with tasks whose lease runs."""

    SKIP = "skip"
    TAKE = "take"


# What follows from the list of the actions.
if TYPE_CHECKING:
    BulkVerb = str
    OperationVerb = str
    BulkParameters = Any
else:
    BulkVerb = StrEnum("BulkVerb", {name.upper(): name for name in ACTIONS}, module=__name__)
    BulkVerb.__doc__ = "Actions on many tasks. To undo an operation, use its undo endpoint."
    OperationVerb = StrEnum("OperationVerb", {name.upper(): name for name in WORDS}, module=__name__)
    OperationVerb.__doc__ = "What is done to many tasks."
    BulkParameters = defstruct(
        "BulkParameters",
        [
            *[(option.name, KINDS[option.kind] | type(option.default)) for option in OPTIONS.values()],
            ("claimed", WithClaimed),
        ],
        namespace={"__doc__": "How it is done, in the words of the request."},
        module=__name__,
        frozen=True,
        kw_only=True,
    )


class ByState(Struct, frozen=True, kw_only=True):
    """They add up to the count."""

    ready: int
    claimed: int
    expired: int
    scheduled: int


class Target(Struct, frozen=True, kw_only=True):
    """A group that a requeue puts tasks into."""

    group: str
    count: Annotated[int, Meta(description="The number of matching tasks, without leased ones.")]
    claimed: Annotated[int, Meta(description="The number of additional tasks if `claimed` is take.")]


class Preview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What would be meant, at this moment."""

    count: Annotated[int, Meta(description="Send it as `expected`.")]
    by_state: ByState
    claimed: Annotated[int, Meta(description="Leased tasks, which are skipped unless `claimed` is take.")]
    ready_already: Annotated[
        int, Meta(description="Ready tasks without an error that are not dead letters; a requeue skips them.")
    ]
    group: Annotated[str, Meta(description="The group of all tasks; empty if there are several groups or no tasks.")]
    samples: Annotated[Ids, Meta(description="A sample of the ids.")]
    bound: Annotated[Int64, Meta(description="Send it unchanged. Tasks added later are not changed.")]
    as_of: Annotated[int, Meta(description="The time of the preview in milliseconds. Send it unchanged.")]
    to_type: Annotated[str, Meta(description="The text to send as `typed`; empty if none is needed.")]
    targets: Annotated[
        tuple[Target, ...] | None, Meta(description="For a requeue only: the target groups, largest first.")
    ] = None
    ended: Annotated[int | None, Meta(description="For a requeue only: ended commands, which it skips.")] = None


class Links(Struct, frozen=True, kw_only=True):
    """Where the operation is, and what can be done with it."""

    operation: str
    items: str
    cancel: str
    undo: str


class Operation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is done to many tasks, and how far it has come."""

    id: Int64
    verb: OperationVerb
    selection: Annotated[str, Meta(description="A description of the selection.")]
    group: Annotated[str, Meta(description="The group of all tasks; empty if there are several or none.")]
    parameters: BulkParameters
    state: OperationState
    expected: int
    done: int
    skipped: int
    failed: int
    gone: Annotated[int, Meta(description="Expected tasks that others changed or ended first.")]
    by: Annotated[str, Meta(description="A user's name, or `token:` and the name of a token.")]
    reason: str
    began_at_ms: At = field(name="began")
    ended_at_ms: Annotated[int | None, Meta(description="null while it runs.")] = field(name="ended")
    cancelled_by: Annotated[str, Meta(description="Empty if it was not cancelled.")]
    undoes: Annotated[Int64 | None, Meta(description="The operation that this one undoes; null if it is not an undo.")]
    links: Links
    reasons: Annotated[
        dict[str, int] | None, Meta(description="The number of skipped tasks by reason. Not in lists.")
    ] = None
    undoable: Annotated[bool | None, Meta(description="Whether it can be undone. Not in lists.")] = None
    not_undoable: Annotated[str | None, Meta(description="Why it can't be undone; empty if it can. Not in lists.")] = (
        None
    )


class OperationsPage(Struct, frozen=True, kw_only=True):
    """Operations, the newest first."""

    operations: tuple[Operation, ...]
    after: Annotated[Int64 | None, Meta(description="Send it as `after` for the next page; null on the last page.")]


class Item(Struct, frozen=True, kw_only=True):
    """What became of a task."""

    origin: Int64
    task: Annotated[Int64, Meta(description="The id before the operation; 0 for a restored task.")]
    outcome: ItemOutcome
    why: Annotated[str, Meta(description="Why it was skipped or failed.")]


class ItemsPage(Struct, frozen=True, kw_only=True):
    """Tasks of an operation, by their origins. They are kept for as long as it can be undone."""

    items: tuple[Item, ...]
    after: Annotated[
        Int64 | None, Meta(description="Send it as `after` for the next page; null on the last page so far.")
    ]


prepare(Preview, OperationsPage, ItemsPage)
