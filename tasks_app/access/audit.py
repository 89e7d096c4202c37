"""The audit log of changes by people and tokens with the scope `operate`.

Rows are written once; the database refuses to change them.

Every function that makes such a change records it in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.actors import Actor
from ..models import AuditEntry

NODE = "node:"  # Prefix of the name of a server that acts by itself: no username has a colon.


def record(
    actor: Actor,
    action: str,
    *,
    group: str = "",
    selection: str,
    done: int,
    skipped: int = 0,
    details: Mapping[str, Any] | None = None,
    duration_ms: int = 0,
) -> AuditEntry:
    """Record the action of an actor, its number of tasks and its reason. Records nothing for the program itself.

    `selection` describes the tasks ("3 tasks", "all failed tasks"); `group` is empty for several groups or
    none. `details` has `ids` of tasks, `skipped` counts by reason, and anything else. Returns the entry.
    """
    entry = AuditEntry(
        actor=actor.name,
        action=action,
        group=group,
        selection=selection,
        reason=actor.reason,
        done=done,
        skipped=skipped,
        details=dict(details or {}),
        duration_ms=duration_ms,
    )
    if actor.name:
        entry.save(force_insert=True)
    return entry
