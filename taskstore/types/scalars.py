"""The simple types of requests and responses, with their bounds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.json import Decoder

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
LATEST_MS = 253_402_300_799_999  # The end of the year 9999, the latest that all calendars support.
MOST_PRIORITY = 100
GROUP_LENGTH = 255
TYPE_LENGTH = 1_000
LABEL_LENGTH = 255
KEY_LENGTH = 255
MOST_UNIQUE_FOR_MS = 30 * 24 * 3_600_000

Int64 = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Ids = tuple[Int64, ...]
Timespec = Annotated[
    int,
    Meta(
        ge=-(LATEST_MS // 2),
        le=LATEST_MS,
        description="0: now. Negative: that many milliseconds from now. Positive: milliseconds since the Epoch.",
    ),
]
Priority = Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY, description="Higher values are claimed first.")]
UniqueKey = Annotated[
    str,
    Meta(
        description="1 to 255 characters. While another task holds this key of the group, nothing is added: the answer "
        "has the task that holds it, with `duplicate`. A successor keeps its key."
    ),
]
UniqueFor = Annotated[
    int,
    Meta(
        ge=0,
        le=MOST_UNIQUE_FOR_MS,
        description="How long after the add the key stays taken even if the task ends, in milliseconds. At most 30 "
        "days. Only together with `unique`.",
    ),
]
DataType = Annotated[str, Meta(description="The type URL, for data that is a protobuf Any.")]
At = Annotated[int, Meta(description="Milliseconds since the Epoch.")]
After = Annotated[str | None, Meta(description="Send it as `after` for the next page; null on the last page.")]
Reason = Annotated[str, Meta(description="At most 1 000 characters.")]


def prepare(*kinds: type) -> None:
    """Have msgspec compile these types while their module is imported.

    Otherwise it compiles a type on first use, and two threads that do so at the same moment crash the process.
    """
    for kind in kinds:
        Decoder(kind)
