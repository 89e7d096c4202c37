"""Simple types of what crosses the wire, with their bounds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.json import Decoder

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Ids = tuple[Int64, ...]
DataType = Annotated[str, Meta(description="The type URL, for data that is a protobuf Any.")]
At = Annotated[int, Meta(description="Milliseconds since the Epoch.")]
After = Annotated[str | None, Meta(description="Send it as `after` to go on; null: there are no more.")]
Reason = Annotated[str, Meta(description="At most 1 000 characters.")]


def prepare(*kinds: type) -> None:
    """Have msgspec work out these types now, while their module is imported.

    It does so when it first meets a type, and two threads that make it do so at the same moment crash the process.
    """
    for kind in kinds:
        Decoder(kind)
