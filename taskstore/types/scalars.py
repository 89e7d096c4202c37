"""The simple types of requests and responses, with their bounds, and the permissions of tokens and people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta
from msgspec.json import Decoder

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
LATEST_MS = 253_402_300_799_999  # The end of the year 9999, the latest that all calendars support.
MOST_PRIORITY = 100
GROUP_LENGTH = 255
TYPE_LENGTH = 1_000
LABEL_LENGTH = 255
CLIENT_TEXT_LENGTH = 255
REASON_LENGTH = 1_000
KEY_LENGTH = 255
MOST_UNIQUE_FOR_MS = 30 * 24 * 3_600_000
MOST_CLAIMED = 1_000
MOST_WAIT_MS = 60_000  # The longest that the server holds a claim.

Int64 = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Ids = tuple[Int64, ...]
Timespec = Annotated[
    int,
    Meta(
        ge=-(LATEST_MS // 2),
        le=LATEST_MS,
        description="0 means now, a negative number that many milliseconds from now, a positive number milliseconds "
        "since the Epoch.",
    ),
]
Priority = Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY, description="Higher values are claimed first.")]
UniqueKey = Annotated[
    str,
    Meta(
        description="1 to 255 characters. If another task of the group holds this key, nothing is added: the response "
        "contains that task, with `duplicate`. Successors keep the key."
    ),
]
UniqueFor = Annotated[
    int,
    Meta(
        ge=0,
        le=MOST_UNIQUE_FOR_MS,
        description="How long the key stays reserved after the add even if the task ends, in milliseconds. At most 30 "
        "days. Requires `unique`.",
    ),
]
DataType = Annotated[str, Meta(description="The type URL, for data that is a protobuf Any.")]
At = Annotated[int, Meta(description="Milliseconds since the Epoch.")]
After = Annotated[str | None, Meta(description="Send it as `after` for the next page; null on the last page.")]
# What no text may hold, because databases refuse it: NUL, and the halves of a character.
PLAIN = r"\A[^\0\ud800-\udfff]*\Z"
ONE_PART = r"\A[^/\0\ud800-\udfff]+\Z"  # A part of a path, or of a group's name.
GroupName = Annotated[str, Meta(min_length=1, max_length=GROUP_LENGTH, pattern=PLAIN)]
GroupInPath = Annotated[
    GroupName, Meta(description="The name of the group. It can contain any characters; send `/` as is or as %2F.")
]
Reason = Annotated[
    str,
    Meta(max_length=REASON_LENGTH, pattern=PLAIN, description="Recorded in the audit log; at most 1 000 characters."),
]
SomeIds = Sequence[Int64]
PageSize = Annotated[int, Meta(ge=1, le=200, description="The maximum number of entries to return.")]
NextAfter = Annotated[str, Meta(description="The `after` of the previous page, or the `place` of an entry.")]
NextAfterId = Annotated[Int64, Meta(description="The `after` of the previous page.")]
TimespecAlias = Annotated[
    int,
    Meta(
        ge=-(LATEST_MS // 2),
        le=LATEST_MS,
        description="Another name for `timespec`, for clients of the original Task Store. Also in milliseconds.",
    ),
]
Duration = Annotated[int, Meta(ge=INT64_MIN, le=LATEST_MS // 2, description="The length of the lease in milliseconds.")]
Wait = Annotated[
    int, Meta(ge=0, le=MOST_WAIT_MS, description="How long to wait for an available task, in milliseconds.")
]
MostAtOnce = Annotated[int, Meta(ge=1, le=MOST_CLAIMED, description="The maximum number of tasks to claim.")]
Labels = Annotated[dict[str, str], Meta(description="At most 64 labels; names and values are strings.")]
DataBase64 = Annotated[bytes, Meta(description="In place of `data`, for data that is not UTF-8.")]
ClientText = Annotated[str, Meta(max_length=CLIENT_TEXT_LENGTH, pattern=PLAIN, description="At most 255 characters.")]
ProcessId = Annotated[int, Meta(ge=0, le=INT64_MAX, description="The process id of the operating system.")]
Key = Annotated[str, Meta(description="Makes the request safe to repeat, like the header Idempotency-Key.")]
ServerSet = Annotated[Any, Meta(description="Set by the server; accepted and ignored.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a server accepts at once. Each limit is a setting of the server; these are the defaults."""

    data_bytes: int = 10 * 2**20
    changes: int = 10_000  # Adds, updates, deletes and depends of a commit together.
    labels: int = 64
    groups: int = 1_000  # Of a claim.
    values: int = 1_000_000  # In all objects and lists of a body of JSON together.
    error_length: int = 100_000
    plan_bytes: int = 16 * 2**20  # The stored size of all tasks that a batch adds later.


WHOLE = re.compile("-?[0-9]{1,19}")


def whole(text: str, least: int = 0, most: int = INT64_MAX) -> int | None:
    """Parse a whole number of at most 19 decimal digits. None: the text is something else, or out of these bounds."""
    # `int` alone would accept "1_000", " 7" and the digits of other scripts.
    if not WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if least <= number <= most else None


def is_in_group(pattern: str, group: str) -> bool:
    """Return whether the pattern of groups covers this one: it is its name, or with a star the start of its name."""
    return group.startswith(pattern[:-1]) if pattern.endswith("*") else group == pattern


def prepare(*kinds: type) -> None:
    """Have msgspec compile these types while their module is imported.

    Otherwise it compiles a type on first use, and two threads that do so at the same moment crash the process.
    """
    for kind in kinds:
        Decoder(kind)


class Action(StrEnum):
    SEE = "see"  # Groups, counts, tasks without their data.
    SEE_PAYLOADS = "see payloads"  # The data of tasks.
    WORK = "work"  # Add and claim tasks, commit results.
    OPERATE = "operate"  # Override owners: requeue, move, edit, purge. See the audit log: reasons may name people.
    ADMINISTER = "administer"  # Users and tokens.
    COMMANDS = "commands"  # Submit shell commands, run them, and change them in any other way.
