"""What workers say of themselves."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from .scalars import Int64, prepare


class Heard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker said of itself with its last heartbeat."""

    client_id: Int64 = field(name="clientid")
    name: str
    host: str
    pid: int | None
    groups: Annotated[tuple[str, ...], Meta(description="The groups that the token has access to.")]
    version: str
    info: dict[str, Any]
    seen_at_ms: Annotated[int, Meta(description="The time of the last report, in milliseconds since the Epoch.")] = (
        field(name="seen")
    )
    age_ms: Annotated[int, Meta(description="Milliseconds since the last report, by the server's clock.")] = field(
        name="age"
    )
    done_per_minute: Annotated[
        float | None,
        Meta(
            description="Tasks finished in the last ten full minutes, in all groups: leases ended by a delete or an "
            "update that did not give the task back. Only in the list."
        ),
    ] = None


prepare(Heard)
