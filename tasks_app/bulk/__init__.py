"""What a person or a program does to many tasks: requeue, move, edit, purge, and undo.

An operation runs in chunks, each one whole commit, so that no transaction is giant and workers' claims
do not wait for it. It may be begun in one process and ended in another.
"""

from .running import reasons, run
from .selection import SAMPLES, SAY_WHICH, Preview, Selection, preview
from .starting import Asked, cancel, start, to_type, undo, why_not_undoable
from .verbs import Parameters, Verb

__all__ = [
    "SAMPLES",
    "SAY_WHICH",
    "Asked",
    "Parameters",
    "Preview",
    "Selection",
    "Verb",
    "cancel",
    "preview",
    "reasons",
    "run",
    "start",
    "to_type",
    "undo",
    "why_not_undoable",
]
