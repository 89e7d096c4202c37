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
    groups: Annotated[tuple[str, ...], Meta(description="Those that the token may touch.")]
    version: str
    info: dict[str, Any]
    seen_at_ms: Annotated[int, Meta(description="When, in milliseconds since the Epoch.")] = field(name="seen")
    age_ms: Annotated[int, Meta(description="How long ago by the server's clock, in milliseconds.")] = field(name="age")
    done_per_minute: Annotated[
        float | None,
        Meta(
            description="Tasks that it was done with, over the last ten full minutes, in every group. Done: it ended "
            "its lease by an update that did not give the task back. Only in the list."
        ),
    ] = None


prepare(Heard)
