"""What a person or a program does to many tasks: requeue, move, edit, purge, and undo.

An operation runs in chunks, each one whole commit, so that no transaction is giant and workers' claims
do not wait for it. It may be begun in one process and ended in another.
"""

from .actions import (
    ACTIONS,
    Action,
    Edit,
    Move,
    Purge,
    Requeue,
    Skip,
    action_named,
    action_of,
    requeued,
    target_of,
)
from .running import Runner, reasons, run
from .selection import SAMPLES, SAY_WHICH, Preview, Selection, Target, preview
from .starting import Asked, cancel, start, to_type, undo, why_not_undoable

__all__ = [
    "ACTIONS",
    "SAMPLES",
    "SAY_WHICH",
    "Action",
    "Asked",
    "Edit",
    "Move",
    "Preview",
    "Purge",
    "Requeue",
    "Runner",
    "Selection",
    "Skip",
    "Target",
    "action_named",
    "action_of",
    "cancel",
    "preview",
    "reasons",
    "requeued",
    "run",
    "start",
    "target_of",
    "to_type",
    "undo",
    "why_not_undoable",
]
