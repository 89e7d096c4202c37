"""Groups in numbers, and their pauses."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from .scalars import At, prepare


class GroupStats(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group in numbers."""

    group: str
    ready: Annotated[int, Meta(description="Available and not leased.")]
    claimed: Annotated[int, Meta(description="Leased now.")]
    expired: Annotated[int, Meta(description="The lease has ended, and no client has claimed the task since.")]
    scheduled: Annotated[int, Meta(description="Not yet available and not leased.")]
    failed: Annotated[int, Meta(description="With an error; also counted in one of the other states.")]
    oldest_ready_ms: Annotated[
        int | None,
        Meta(description="Milliseconds for which the oldest ready task has been ready; null if there is none."),
    ] = field(name="oldest_ready")
    in_per_minute: Annotated[float, Meta(description="Tasks that entered the group within the last minute.")]
    out_per_minute: Annotated[
        float, Meta(description="Tasks that left the group. Claims, renewals and edits count as neither.")
    ]
    paused: Annotated[bool, Meta(description="Whether the group is paused: it hands out no tasks.")]
    finished: Annotated[
        int, Meta(description="Ended jobs and commands, which are not ready. Absent if there are none.")
    ] = 0


class Stats(Struct, frozen=True, kw_only=True):
    """Every group that holds a task, sorted by name."""

    at_ms: Annotated[int, Meta(description="The time of the counts, in milliseconds since the Epoch.")] = field(
        name="at"
    )
    groups: tuple[GroupStats, ...]


class Pause(Struct, frozen=True, kw_only=True):
    """Who paused a group, when and why."""

    by: Annotated[str, Meta(description="A user's name, or `token:` and a token's name.")]
    at_ms: At = field(name="at")
    reason: str


class GroupPause(Struct, frozen=True, kw_only=True):
    """Whether claims find what is in a group."""

    group: str
    paused: Annotated[Pause | None, Meta(description="null if it is not paused.")] = None


prepare(Stats, GroupPause)
