"""The trail of what people and operating tokens changed. Rows are written once; the database refuses to change them.

Each change has one: whoever adds a way to change something records it in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.actors import Actor
from ..models import AuditEntry

NODE = "node:"  # A server that acts by itself is this and its name: no user's name has a colon.


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
    """Write down who did what (`action`), to how many tasks, and why. Nothing for the program itself.

    `selection` says in words what was meant ("3 tasks", "all failed tasks"); `group` is empty
    when several groups or none are concerned. `details`: `ids` of tasks, `skipped` by
    why, and what else there is to know. Returns the entry.
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
