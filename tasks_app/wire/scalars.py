"""The simple types of what crosses the wire, with their bounds, which the description gives too."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from taskstore.types.scalars import DataType as DataType
from taskstore.types.scalars import Ids as Ids
from taskstore.types.scalars import Int64 as Int64
from taskstore.types.scalars import Priority as Priority
from taskstore.types.scalars import Reason as Reason
from taskstore.types.scalars import Timespec as Timespec

from ..core.validation import INT64_MAX, INT64_MIN, LATEST_MS, MOST_CLAIMED, MOST_WAIT_MS

TimespecAlias = Annotated[
    int,
    Meta(
        ge=-(LATEST_MS // 2),
        le=LATEST_MS,
        description="Another name for `timespec`, for clients of the original Task Store. Also in milliseconds.",
    ),
]
Duration = Annotated[int, Meta(ge=INT64_MIN, le=LATEST_MS // 2, description="The length of the lease in milliseconds.")]
Wait = Annotated[int, Meta(ge=0, le=MOST_WAIT_MS, description="Milliseconds to wait for a task that can be claimed.")]
MostAtOnce = Annotated[int, Meta(ge=1, le=MOST_CLAIMED, description="The maximum number of tasks to claim.")]
Labels = Annotated[dict[str, str], Meta(description="At most 64 labels; names and values are text.")]
DataBase64 = Annotated[bytes, Meta(description="In place of `data`, for data that is not UTF-8.")]
CLIENT_TEXT_LENGTH = 255
ClientText = Annotated[str, Meta(description="At most 255 characters.")]
ProcessId = Annotated[int, Meta(ge=0, le=INT64_MAX, description="The process id of the operating system.")]
Key = Annotated[str, Meta(description="Makes it safe to send the request again, as the header Idempotency-Key does.")]
ServerSet = Annotated[Any, Meta(description="Set by the server; accepted and ignored.")]
