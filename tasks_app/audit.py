"""The trail of what people changed. Rows are written once; the database refuses to change them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .models import AuditEntry


def record(
    *,
    actor: str,
    action: str,
    group: str = "",
    selection: str,
    reason: str = "",
    done: int,
    skipped: int = 0,
    details: Mapping[str, Any] | None = None,
    duration_ms: int = 0,
) -> AuditEntry:
    """Write down who (`actor`, a user's name) did what (`action`), to how many tasks, and why.

    `selection` says in words what was meant ("3 tasks", "all failed tasks"); `group` is empty
    when several groups or none are concerned.
    """
    return AuditEntry.objects.create(
        actor=actor,
        action=action,
        group=group,
        selection=selection,
        reason=reason,
        done=done,
        skipped=skipped,
        details=dict(details or {}),
        duration_ms=duration_ms,
    )
