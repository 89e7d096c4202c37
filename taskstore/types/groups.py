"""Counts and rates of groups, their pauses, and the heartbeats of workers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from .limits import GroupLimit
from .scalars import At, Int64

LATE_MS, LOST_MS = 30_000, 120_000  # When a worker that says nothing is late, and when it is lost.


class Pulse(StrEnum):
    """The condition of a client, by the age of its last heartbeat."""

    LIVE = "live"
    LATE = "late"
    LOST = "lost"


def pulse_of(age_ms: int) -> Pulse:
    """Return what the time since its last heartbeat says of a worker."""
    return Pulse.LIVE if age_ms < LATE_MS else Pulse.LATE if age_ms < LOST_MS else Pulse.LOST


class GroupStats(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The counts and rates of a group."""

    group: str
    ready: Annotated[int, Meta(description="Available tasks.")]
    claimed: Annotated[int, Meta(description="Leased tasks.")]
    expired: Annotated[int, Meta(description="Tasks whose lease has expired and that have not been claimed since.")]
    scheduled: Annotated[int, Meta(description="Tasks that are not yet available and not leased.")]
    failed: Annotated[int, Meta(description="Tasks with an error; each is also counted by its state.")]
    oldest_ready_ms: Annotated[
        int | None, Meta(description="How long the oldest ready task has been ready, in ms; null without ready tasks.")
    ] = field(name="oldest_ready")
    in_per_minute: Annotated[float, Meta(description="Tasks that entered the group within the last minute.")]
    out_per_minute: Annotated[float, Meta(description="Tasks that left it. Claims, renewals and edits don't count.")]
    paused: Annotated[bool, Meta(description="Whether the group is paused; a paused group hands out no tasks.")]
    retrying: Annotated[
        int, Meta(description="Tasks that are not leased and have failed, and run again. Absent if there are none.")
    ] = 0
    dead: Annotated[
        int,
        Meta(
            description="Dead letters, and jobs and commands that have failed for good; none is leased. "
            "Absent if there are none."
        ),
    ] = 0
    finished: Annotated[
        int, Meta(description="Records of finished jobs and commands, which don't count as ready. Absent if none.")
    ] = 0
    limit: Annotated[GroupLimit | None, Meta(description="The limit of the group. Absent if there is none.")] = None


class Stats(Struct, frozen=True, kw_only=True):
    """The statistics of every non-empty group, sorted by name."""

    at_ms: Annotated[int, Meta(description="The time of the counts; milliseconds since the Epoch.")] = field(name="at")
    groups: tuple[GroupStats, ...]


class Pause(Struct, frozen=True, kw_only=True):
    """The pause of a group."""

    by: Annotated[str, Meta(description="The user or token that paused it.")]
    at_ms: At = field(name="at")
    reason: str


class GroupPause(Struct, frozen=True, kw_only=True):
    """A group and its pause."""

    group: str
    paused: Annotated[Pause | None, Meta(description="null if the group is not paused.")] = None


class ClientStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last heartbeat of a worker."""

    client_id: Int64 = field(name="clientid")
    name: str
    host: str
    pid: int | None
    groups: Annotated[tuple[str, ...], Meta(description="The groups it claims from that the token may access.")]
    version: str
    info: dict[str, Any]
    seen_at_ms: Annotated[int, Meta(description="The time of the heartbeat; milliseconds since the Epoch.")] = field(
        name="seen"
    )
    age_ms: Annotated[int, Meta(description="Milliseconds since the heartbeat, by the server's clock.")] = field(
        name="age"
    )
    done_per_minute: Annotated[
        float | None,
        Meta(
            description="Tasks done per minute over the last ten full minutes, in all groups. A task counts as "
            "done when an update ends its lease without giving the task back. Only in the list."
        ),
    ] = None
    keep: Annotated[
        dict[str, int],
        Meta(
            description="How many commands a worker should keep of each list, by group, because other workers are "
            "idle. Only in the answer to a report whose `info` names groups as `waiting`."
        ),
    ] = field(default_factory=dict)
