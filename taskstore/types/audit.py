"""The audit log: who changed what."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from .scalars import After, At, Int64, prepare

AUDIT_LENGTH = 1_000  # Of the texts of a filter.


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A change by a person or by a token with the scope `operate`."""

    id: Int64
    at_ms: At = field(name="at")
    by: Annotated[
        str,
        Meta(description="A user's name, `token:` or `node:` with its name, or `unknown:` and the name typed."),
    ]
    action: str
    group: Annotated[str, Meta(description="Empty for several groups, or none.")]
    selection: Annotated[str, Meta(description="The selected tasks or objects, in words.")]
    reason: str
    done: Annotated[int, Meta(description="The number of changed tasks or other items.")]
    skipped: Annotated[int, Meta(description="The number of unchanged ones; `details` has the reasons.")]
    duration_ms: Annotated[int, Meta(description="Milliseconds.")] = field(name="duration")
    details: dict[str, Any]


class AuditPage(Struct, frozen=True, kw_only=True):
    """Entries of the audit log, newest first."""

    entries: tuple[AuditEntry, ...]
    after: After


prepare(AuditPage)
