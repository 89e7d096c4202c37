"""The trail of what people and operating tokens changed. Rows are written once; the database refuses to change them.

Each change has one: whoever adds a way to change something records it in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from ..models import AuditEntry, Token

NODE = "node:"  # A server that acts by itself is this and its name: no user's name has a colon.


def name_of(actor: Token | AbstractBaseUser) -> str:
    """Who it is, in the audit: `ann` is a user and `token:backup` a token, as no user's name has a colon."""
    return f"token:{actor.name}" if isinstance(actor, Token) else actor.get_username()


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
    """Write down who (`actor`, see `name_of`) did what (`action`), to how many tasks, and why.

    `selection` says in words what was meant ("3 tasks", "all failed tasks"); `group` is empty
    when several groups or none are concerned. `details`: `ids` of tasks, `skipped` by
    why, and what else there is to know.
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
