"""The history of a task, and the audit log: who changed what."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from .requests import Asked
from .scalars import GROUP_LENGTH, PLAIN, After, At, Int64, NextAfter, PageSize, prepare
from .tasks import Ending, Task

AUDIT_LENGTH = 1_000  # Of the texts of a filter.


class End(Struct, frozen=True, kw_only=True):
    """How and when the task with this id was replaced or deleted."""

    at_ms: int = field(name="at")
    commit: Annotated[Int64, Meta(description="The commit that replaced or deleted it.")]
    client_id: Annotated[Int64, Meta(description="The client of that commit or claim.")] = field(name="clientid")
    how: Ending
    successor: Annotated[
        Int64 | None, Meta(description="null if there is none. If another step follows, an undo restored the task.")
    ]
    operator: Annotated[str, Meta(description="The operator who made this change; empty for a worker.")]
    reason: str


class Step(Struct, frozen=True, kw_only=True):
    """One step in the history of a task: its state under one id."""

    id: Int64
    group: str
    available_at_ms: int = field(name="timespec")
    owner: Int64 = field(name="ownerid")
    error: str
    priority: int
    claims: int
    made_at_ms: Annotated[int, Meta(description="When this id was assigned.")] = field(name="made")
    made_by_commit: Int64
    ended: Annotated[End | None, Meta(description="null if the task with this id still exists.")]


class History(Struct, frozen=True, kw_only=True):
    """The history of a task under all its ids, oldest first. Ids whose history has expired are omitted."""

    id: Annotated[Int64, Meta(description="The requested id.")]
    origin: Int64
    created_at_ms: Annotated[int, Meta(description="When the first task of the chain was added.")] = field(
        name="created"
    )
    steps: tuple[Step, ...]


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A change by a person or by a token with the scope `operate`."""

    id: Int64
    at_ms: At = field(name="at")
    by: Annotated[
        str, Meta(description="A user's name, `token:` or `node:` with its name, or `unknown:` and the name typed.")
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


class FileFormat(StrEnum):
    CSV = "csv"
    NDJSON = "ndjson"


AuditText = Annotated[str, Meta(max_length=AUDIT_LENGTH, pattern=PLAIN)]
AUDIT_TIME = "now-1h or 2026-01-31T12:00 (UTC)."


class AuditRequest(Asked, frozen=True, kw_only=True):
    """Which entries of the audit log to show."""

    by: Annotated[AuditText, Meta(description="A user's name, or `token:` and the name of a token.")] = ""
    action: Annotated[AuditText, Meta(description="requeue, move, purge, edit, pause, create token, ...")] = ""
    group: Annotated[
        str, Meta(max_length=GROUP_LENGTH + 1, pattern=PLAIN, description="A name, or a prefix followed by *.")
    ] = ""
    since: Annotated[str, Meta(description=f"Only changes at or after this time: {AUDIT_TIME}")] = ""
    until: Annotated[str, Meta(description=f"Only changes before this time: {AUDIT_TIME}")] = ""
    reason: Annotated[AuditText, Meta(description="Part of the reason, ignoring case.")] = ""
    after: Annotated[str, Meta(description="The `after` of the previous page. Ignored with `format`.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="The maximum number of entries to return.")] = 50


class AuditFileRequest(AuditRequest, frozen=True, kw_only=True):
    """The same, for a page or for a file."""

    format: (
        Annotated[FileFormat, Meta(description="Return all entries as a file instead of a page of JSON.")] | None
    ) = None


# ---- Health checks and error responses


class Health(Struct, frozen=True, kw_only=True):
    """The server process is running."""

    status: str = "ok"
    instance: Annotated[str, Meta(description="An id that is different for each process and after each start.")]


class Problems(Struct, frozen=True, kw_only=True):
    """The request is invalid: the messages for each field, by its path."""

    detail: str
    errors: dict[str, list[str]]


class Failure(Struct, frozen=True, kw_only=True):
    """Why the request failed."""

    detail: str
    code: str | UnsetType = UNSET


prepare(Problems, Failure)


# ---- The results of a search


SEARCH_LENGTH = 1_000


class SearchPage(Struct, frozen=True, kw_only=True):
    """A page of tasks that match every term of a search."""

    tasks: tuple[Task, ...]
    after: After
    complete: Annotated[bool, Meta(description="false if the search stopped at its time limit; `after` continues it.")]
    looked_at: Annotated[int, Meta(description="At least this many tasks were examined.")]
    at_ms: Annotated[int, Meta(description="The time of the search; milliseconds since the Epoch.")] = field(name="at")
    truncated: Annotated[
        bool | UnsetType,
        Meta(description="true if the page ends early, so that the response is not too large; `after` continues it."),
    ] = UNSET


class SearchRequest(Asked, frozen=True):
    """Which tasks to find."""

    q: Annotated[str, Meta(max_length=SEARCH_LENGTH, description="Search terms. A task must match all of them.")] = ""
    after: NextAfter | None = None
    limit: PageSize = 50


class ExportRequest(Asked, frozen=True):
    """Which tasks to export, and how."""

    q: Annotated[str, Meta(max_length=SEARCH_LENGTH, description="As for `/search`; without it, every task.")] = ""
    format: FileFormat = FileFormat.NDJSON
