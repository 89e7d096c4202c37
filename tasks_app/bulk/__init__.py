"""Bulk operations: requeue, move, edit or purge many tasks, and undo it.

An operation runs in chunks, each in commits of limited size, so that workers' claims do not wait for it.
It may start in one process and end in another.
"""

from .actions import (
    ACTIONS,
    Action,
    Cancel,
    Edit,
    GiveBack,
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
from .selection import SAMPLES, Preview, Selection, Target, preview
from .starting import Asked, cancel, changed_since, drifted, refuse_forbidden, start, to_type, undo, why_not_undoable

__all__ = [
    "ACTIONS",
    "SAMPLES",
    "Action",
    "Asked",
    "Cancel",
    "Edit",
    "GiveBack",
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
    "changed_since",
    "drifted",
    "preview",
    "reasons",
    "refuse_forbidden",
    "requeued",
    "run",
    "start",
    "target_of",
    "to_type",
    "undo",
    "why_not_undoable",
]
