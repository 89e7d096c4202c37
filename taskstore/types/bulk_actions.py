"""The bulk actions, with their labels and options.

The server, the command line, the console and the admin list the actions from here. `tasks_app.bulk.actions` applies
them to tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
    key: str = ""  # The keyboard shortcut in the console.

    @property
    def label(self) -> str:
        return self.name.capitalize()


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
PURGE = BulkAction(
    name="purge",
    done="Purged",
    doing="Purging",
    help=f"Delete tasks: {WHICH}.",
    effect="The tasks are deleted.",
    where="from",
    is_destructive=True,
)
# Started from the operation to undo, not from a selection of tasks.
UNDO = BulkAction(name="undo", done="Restored", doing="Restoring", help="Undo an operation.")

ACTIONS = {action.name: action for action in (REQUEUE, MOVE, EDIT, PURGE)}
WORDS = {**ACTIONS, UNDO.name: UNDO}  # The labels of every kind of operation.
OPTIONS = {option.name: option for action in ACTIONS.values() for option in action.options}


def actions_with(option: str) -> list[str]:
    """Return the names of the actions that have this option."""
    return [action.name for action in ACTIONS.values() if option in {each.name for each in action.options}]
