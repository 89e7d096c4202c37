"""Bulk operations: their requests, their preview, their progress, and the outcome for each task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from msgspec import Meta, Struct, defstruct, field

from . import sentences
from .requests import Asked
from .scalars import (
    INT64_MAX,
    LATEST_MS,
    At,
    GroupName,
    Ids,
    Int64,
    Key,
    Limits,
    NextAfterId,
    PageSize,
    Priority,
    Reason,
    SomeIds,
)
from .tasks import Problem, State


class Kind(StrEnum):
    """The type of an option's value."""

    GROUP = "group"  # The name of a group.
    TEXT = "text"
    FLAG = "flag"
    PRIORITY = "priority"
    TIME = "time"  # Milliseconds since the Epoch; 0: now.
    MINUTES = "minutes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of an action: a field of its request, an option of its command, an input of its form."""

    name: str
    kind: Kind
    label: str  # Of the input.
    description: str  # For the schema and the command line.
    fact: str = ""  # Its name in a summary of the operation; empty: left out.
    hint: str = ""  # Shown below the input.
    default: str | int | bool | None = None  # None: the field that it sets stays unchanged.
    otherwise: str = ""  # A sentence for the confirmation when it is not set.
    is_required: bool = False
    is_rare: bool = False  # Hidden in a form at first.
    is_previewed: bool = False  # Also an option of the preview.


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    """A bulk action: its labels and options."""

    name: str
    done: str
    doing: str
    help: str  # Of its command: a line, a sentence, perhaps an example.
    effect: str = ""  # A sentence for the confirmation.
    where: str = "in"  # The preposition between the tasks and their group.
    options: tuple[Option, ...] = ()
    needs_one: bool = False  # At least one option is required.
    is_destructive: bool = False
    of_leases: bool = False  # It concerns leased tasks alone.
    key: str = ""  # The keyboard shortcut in the console.

    @property
    def words(self) -> str:
        return self.name.replace("_", " ")

    @property
    def label(self) -> str:
        return self.words.capitalize()

    @property
    def command(self) -> str:
        """Return its name on the command line."""
        return self.name.replace("_", "-")


WHICH = "those with these ids, or all that match every TERM of a search"

REQUEUE = BulkAction(
    name="requeue",
    done="Requeued",
    doing="Requeuing",
    help=f"""Make tasks available again, without owner and error: {WHICH}.

    Dead letters return to the group in which they failed.

    taskstore requeue group:mail/failed --spread-minutes 10
    """,
    effect="The tasks become available, without owner or error.",
    key="r",
    options=(
        Option(
            name="here",
            kind=Kind.FLAG,
            label="Requeue here: leave dead letters in their group",
            description="Leave dead letters in their group instead of returning them to the one in which they failed.",
            otherwise="Dead letters return to the group in which they failed.",
            default=False,
            is_previewed=True,
        ),
        Option(
            name="at",
            kind=Kind.TIME,
            label="Available from (UTC)",
            description="The time from which the tasks are available.",
            fact="available at",
            hint="Leave empty for the current time.",
            default=0,
            is_rare=True,
        ),
        Option(
            name="spread_minutes",
            kind=Kind.MINUTES,
            label="Spread over (minutes)",
            description="The number of minutes over which the tasks become available, evenly.",
            fact="spread over",
            hint="Leave empty to make all tasks available at once.",
            default=0,
            is_rare=True,
        ),
    ),
)
MOVE = BulkAction(
    name="move",
    done="Moved",
    doing="Moving",
    help=f"Move tasks to another group: {WHICH}.",
    effect="Only the group changes.",
    where="from",
    key="m",
    options=(
        Option(
            name="to",
            kind=Kind.GROUP,
            label="To group",
            description="The group to move to.",
            fact="to",
            default="",
            is_required=True,
        ),
        Option(
            name="create",
            kind=Kind.FLAG,
            label="Create the group if it doesn't exist",
            description="Create the group if it does not exist.",
            default=False,
        ),
    ),
)
EDIT = BulkAction(
    name="edit",
    done="Edited",
    doing="Editing",
    help=f"""Change the error text or the priority of tasks: {WHICH}.

    Other fields stay unchanged. A task with an error text counts as failed.

    taskstore edit group:mail label.tier:gold --priority 50
    """,
    needs_one=True,
    key="e",
    options=(
        Option(
            name="error",
            kind=Kind.TEXT,
            label="Error",
            description="The new error text; empty to clear it.",
            fact="error",
            hint="Leave empty to clear the error.",
        ),
        Option(
            name="priority",
            kind=Kind.PRIORITY,
            label="Priority",
            description="-100 to 100. Higher values are claimed first.",
            fact="priority",
            hint="-100 to 100. Higher values are claimed first.",
        ),
    ),
)
GIVE_BACK = BulkAction(
    name="give_back",
    done="Gave back",
    doing="Giving back",
    help=f"""End the leases of tasks, which are ready at once: {WHICH}.

    Results that their workers commit are refused. Errors and labels stay unchanged.

    taskstore give-back owner:1234
    """,
    effect="The leases end, and the tasks are ready at once. Results that their workers commit are refused.",
    of_leases=True,
)
COUNTS_AS_DONE = Option(
    name="counts_as_done",
    kind=Kind.FLAG,
    label="Count as done: their batches go on as if these tasks had succeeded",
    description="Count the tasks as succeeded in their batches, which go on. An undo restores them without a batch.",
    default=False,
)
PURGE = BulkAction(
    name="purge",
    done="Purged",
    doing="Purging",
    help=f"Delete tasks: {WHICH}.",
    effect="The tasks are deleted.",
    where="from",
    options=(COUNTS_AS_DONE,),
    is_destructive=True,
)
CANCEL = BulkAction(
    name="cancel",
    done="Cancelled",
    doing="Cancelling",
    help=f"""Cancel tasks: {WHICH}.

    Tasks are deleted. Jobs and commands are kept as cancelled. Workers end cancelled jobs and commands within seconds.

    taskstore cancel group:jobs/mail --reason "wrong addresses"
    """,
    effect="Jobs and commands are kept as cancelled, other tasks are deleted. Workers stop what they run of them.",
    where="in",
    options=(COUNTS_AS_DONE,),
    is_destructive=True,
)
# Started from the operation to undo, not from a selection of tasks.
UNDO = BulkAction(name="undo", done="Restored", doing="Restoring", help="Undo an operation.")

ACTIONS = {action.name: action for action in (REQUEUE, GIVE_BACK, MOVE, EDIT, CANCEL, PURGE)}
WORDS = {**ACTIONS, UNDO.name: UNDO}  # The labels of every kind of operation.
OPTIONS = {option.name: option for action in ACTIONS.values() for option in action.options}


def actions_with(option: str) -> list[str]:
    """Return the names of the actions that have this option."""
    return [action.name for action in ACTIONS.values() if option in {each.name for each in action.options}]


Time = Annotated[int, Meta(ge=0, le=LATEST_MS)]
Number = Annotated[int, Meta(ge=0, le=INT64_MAX)]
SelectedTasksT = TypeVar("SelectedTasksT", bound="SelectedTasks")
SearchTerms = Annotated[str, Meta(description="Search terms as in /search; group:* selects all tasks of the store.")]

SAY_WHICH = "must select tasks, for example group:mail state:failed; group:* selects all tasks of the store"

# The type of each kind of option in a request.
KINDS: Mapping[Kind, Any] = {
    Kind.GROUP: str,
    Kind.TEXT: str,
    Kind.FLAG: bool,
    Kind.PRIORITY: Priority,
    Kind.TIME: Time,
    Kind.MINUTES: Number,
}
NOTES = {Kind.TIME: "Milliseconds since the Epoch; 0 means now.", Kind.MINUTES: "0 means all at once."}


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
            *[
                # Without the bounds and descriptions of a request.
                (option.name, getattr(KINDS[option.kind], "__origin__", KINDS[option.kind]) | type(option.default))
                for option in OPTIONS.values()
            ],
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
    retrying: int
    failed: int
    finished: int


class Target(Struct, frozen=True, kw_only=True):
    """A group to which a requeue moves tasks."""

    group: str
    count: Annotated[int, Meta(description="Tasks that are not claimed.")]
    claimed: Annotated[int, Meta(description="Claimed tasks, which are included if `claimed` is take.")]


class ClosedBatch(Struct, frozen=True, kw_only=True):
    """A batch that an operation closes, or that will close as failed because of it."""

    id: Int64
    state: Annotated[str, Meta(description="How it closes: failed or succeeded.")]
    planned: Annotated[int, Meta(description="How many tasks were to follow. They follow only if it succeeds.")]
    waits: Annotated[bool, Meta(description="Whether it stays open until its other tasks have ended.")] = False

    @property
    def outcome(self) -> str:
        """Return how it closes, in words."""
        how = f"{self.state} once its other tasks have ended" if self.waits else self.state
        made = "not made" if self.state == "failed" else "made"
        tasks = "follow-up task is" if self.planned == 1 else "follow-up tasks are"
        return f"as {how}" + (f"; its {self.planned} {tasks} {made}" if self.planned else "")


class Preview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tasks that a bulk operation would change at this moment."""

    count: Annotated[int, Meta(description="Send it as `expected`.")]
    by_state: ByState
    claimed: Annotated[int, Meta(description="Claimed tasks: skipped unless `claimed` is take.")]
    ready_already: Annotated[int, Meta(description="Ready tasks, which a requeue skips.")]
    group: Annotated[str, Meta(description="The group of all these tasks; empty for several groups or no task.")]
    samples: Annotated[Ids, Meta(description="A few of the ids.")]
    bound: Annotated[Int64, Meta(description="Send it unchanged: tasks added later are not affected.")]
    as_of: Annotated[int, Meta(description="Send it unchanged: the time of the preview, in ms.")]
    to_type: Annotated[str, Meta(description="The text to send as `typed`; empty if none is needed.")]
    targets: Annotated[
        tuple[Target, ...] | None, Meta(description="For a requeue only: the target groups, largest first.")
    ] = None
    closes: Annotated[
        tuple[ClosedBatch, ...],
        Meta(
            description="Of a purge or a cancel: the batches that close, or can't succeed any more, when none of these "
            "tasks is skipped. With `counts_as_done` they go on."
        ),
    ] = ()
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
        int, Meta(description="Tasks of the preview that others changed or deleted before the operation reached them.")
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


def fields_of(options: Iterable[Option]) -> list[tuple[str, Any, Any]]:
    """Return a field for each option. It is None if it is absent."""
    fields = []
    for option in options:
        stays = "Unchanged if absent." if option.default is None else ""
        description = " ".join(filter(None, [option.description, NOTES.get(option.kind), stays]))
        fields.append((option.name, Annotated[KINDS[option.kind], Meta(description=description)] | None, None))
    return fields


class SelectedTasks(Asked, frozen=True, kw_only=True):
    """The tasks to preview: those with these ids, or all that match the group, the state and the search."""

    verb: BulkVerb
    group: GroupName | None = None
    state: State | None = None
    q: SearchTerms = ""
    ids: Annotated[SomeIds, Meta(description="Instead of `state` and `q`.")] | None = None

    def problems(self, limits: Limits) -> Iterator[Problem]:
        for name in self.options:
            if self.verb not in (actions := actions_with(name)):
                yield name, f"must be given only with {' or '.join(actions)}, not with {self.verb}"
        if self.ids is None:
            if self.group is None and self.state is None and not self.q.strip():
                yield "q", SAY_WHICH
            return
        if self.state is not None or self.q.strip():
            yield "ids", sentences.not_together("state", "q")
        if len(self.ids) > limits.changes:
            yield "ids", sentences.at_most(limits.changes, "ids", len(self.ids))

    @property
    def options(self) -> dict[str, Any]:
        """Return the options that are given, by their names."""
        given = {name: getattr(self, name, None) for name in OPTIONS}
        return {name: value for name, value in given.items() if value is not None}


class AgreedTasks(SelectedTasks, frozen=True, kw_only=True):
    """A bulk operation on the tasks of a preview, with its `bound`, its `as_of`, and its `count` as `expected`."""

    bound: Annotated[int, Meta(ge=1, le=INT64_MAX, description="The value from the preview.")]
    as_of: Annotated[int, Meta(ge=1, le=LATEST_MS, description="The value from the preview.")]
    expected: Annotated[Number, Meta(description="The `count` of the preview.")]
    claimed: WithClaimed = WithClaimed.SKIP
    reason: Reason = ""
    typed: Annotated[str, Meta(description="The `to_type` of the preview.")] = ""
    key: Key = ""


def with_options(name: str, base: type[SelectedTasksT], options: Iterable[Option]) -> type[SelectedTasksT]:
    """Return the type of a request that has a field for each option as well."""
    made: Any = defstruct(
        name,
        fields_of(options),
        bases=(base,),
        namespace={"__doc__": base.__doc__},
        module=__name__,
        frozen=True,
        kw_only=True,
    )
    return cast("type[SelectedTasksT]", made)


BulkPreviewRequest = with_options(
    "BulkPreviewRequest", SelectedTasks, [option for option in OPTIONS.values() if option.is_previewed]
)
BulkRequest = with_options("BulkRequest", AgreedTasks, OPTIONS.values())


class OperationsRequest(Asked, frozen=True, kw_only=True):
    """Which operations to list."""

    state: Annotated[OperationState, Meta(description="Only operations in this state.")] | None = None
    after: NextAfterId | None = None
    limit: PageSize = 50


class ItemsRequest(Asked, frozen=True):
    """Which tasks of an operation to list."""

    id: Int64
    outcome: Annotated[ItemOutcome, Meta(description="Only tasks with this outcome.")] | None = None
    after: NextAfterId | None = None
    limit: PageSize = 50
