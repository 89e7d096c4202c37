"""Groups in numbers, and their pauses."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from .scalars import At, prepare


class GroupStats(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group in numbers."""

    group: str
    ready: Annotated[int, Meta(description="Available, and not claimed since.")]
    claimed: Annotated[int, Meta(description="Leased now.")]
    expired: Annotated[int, Meta(description="The lease ran out, and nobody has claimed it since.")]
    scheduled: Annotated[int, Meta(description="Not yet available, and not leased.")]
    failed: Annotated[int, Meta(description="With an error; counted beside the others, not instead.")]
    oldest_ready_ms: Annotated[
        int | None, Meta(description="For how long the oldest ready task has been ready, in ms; null: there is none.")
    ] = field(name="oldest_ready")
    in_per_minute: Annotated[float, Meta(description="Tasks that entered the group within the last minute.")]
    out_per_minute: Annotated[float, Meta(description="Tasks that left it. Claims, renewals, edits: neither.")]
    paused: Annotated[bool, Meta(description="Claims find nothing in it for now.")]
    finished: Annotated[
        int, Meta(description="Jobs and commands that have ended: they are not ready. Absent where none are.")
    ] = 0


class Stats(Struct, frozen=True, kw_only=True):
    """Every group that holds a task, sorted by name."""

    at_ms: Annotated[int, Meta(description="The time of the numbers; milliseconds since the Epoch.")] = field(name="at")
    groups: tuple[GroupStats, ...]


class Pause(Struct, frozen=True, kw_only=True):
    """Who paused a group, when and why."""

    by: Annotated[str, Meta(description="A user, or a token.")]
    at_ms: At = field(name="at")
    reason: str


class GroupPause(Struct, frozen=True, kw_only=True):
    """Whether claims find what is in a group."""

    group: str
    paused: Annotated[Pause | None, Meta(description="null: it is not paused.")] = None


prepare(Stats, GroupPause)
