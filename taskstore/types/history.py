"""The history of a task."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from .scalars import Int64, prepare
from .tasks import Ending


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


prepare(History)
