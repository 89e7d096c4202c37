"""The heartbeats of workers."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from .scalars import Int64, prepare


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


prepare(ClientStatus)
