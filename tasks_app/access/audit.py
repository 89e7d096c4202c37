"""The audit log of changes by people and tokens with the scope `operate`.

Rows are written once; the database refuses to change them.

Every function that makes such a change records it in the same transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from taskstore.errors import InvalidInput

from ..core.actors import Actor
from ..database import atomic
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
        with atomic():
            entry.save(force_insert=True)
    return entry


def version_of(shown: Any) -> str:
    """Return a short text that differs for another value."""
    return hashlib.sha256(msgspec.json.encode(msgspec.to_builtins(shown))).hexdigest()[:16]


def must_still_be(version: str, present: Any, what: str) -> None:
    """Raise InvalidInput for `version` unless it is empty or that of the present value. `what`: for the sentence."""
    if version and version != version_of(present):
        text = f"someone has changed {what} since you opened the form"
        raise InvalidInput({"version": [f"{text}: open it again, and repeat your change"]})
