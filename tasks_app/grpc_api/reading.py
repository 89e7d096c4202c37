"""Messages as values of the store. What is wrong is named by the path of the field in the request."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from ..errors import InvalidInput
from ..masstasker import masstasker_pb2 as pb
from ..operations import NewTask
from ..validation import INT64_MAX, LATEST_MS

IDS = 2**64  # On the wire; of these the store gives out the ones below 2^63.
NANOS_IN_MS = 1_000_000
# What protobuf's own definitions allow: the years 1 to 9999, and ten thousand years.
FIRST_S, LAST_S = -62_135_596_800, 253_402_300_799
LONGEST_S = 315_576_000_000

# What the store's fields are called on the wire.
NAMES = {
    "adds": "created",
    "deletes": "deleted",
    "depends": "predicates",
    "timespec": "not_before",
    "duration": "own_for",
    "data": "data.value",
    "data_type": "data.type_url",
}


def id_in(number: int) -> int:
    """The id; one beyond those that the store gives out is a negative number, under which nothing is there."""
    return number if number <= INT64_MAX else number - IDS


def new_tasks_in(tasks: Sequence[pb.Task]) -> tuple[NewTask, ...]:
    """Raises InvalidInput about times that are none."""
    return tuple(new_task_in(task, f"created[{place}]") for place, task in enumerate(tasks))


def new_task_in(task: pb.Task, path: str) -> NewTask:
    return NewTask(
        id=id_in(task.id),
        group=task.group,
        data=task.data.value,
        data_type=task.data.type_url,
        timespec_ms=time_in(task.not_before, f"{path}.not_before") if task.HasField("not_before") else 0,
        error=task.error,
        labels=dict(task.labels),
    )


def time_in(time: Timestamp, path: str) -> int:
    """Milliseconds since the Epoch, rounded up: nobody gets a task before its time. What is before 1970 is then.

    Raises InvalidInput when it is none of the times that a Timestamp may hold.
    """
    if not (FIRST_S <= time.seconds <= LAST_S and 0 <= time.nanos < 1_000 * NANOS_IN_MS):
        raise InvalidInput({path: ["a time from the year 1 to 9999, with 0 to 999 999 999 nanoseconds"]})
    ms = time.seconds * 1_000 - -time.nanos // NANOS_IN_MS
    return min(max(ms, 1), LATEST_MS)


def duration_in(duration: Duration, path: str) -> int:
    """Milliseconds, rounded up. Raises InvalidInput when it is none of those that a Duration may hold."""
    seconds, nanos = duration.seconds, duration.nanos
    if abs(seconds) > LONGEST_S or abs(nanos) >= 1_000 * NANOS_IN_MS or seconds * nanos < 0:
        raise InvalidInput({path: ["at most 10 000 years, with less than a second of nanoseconds of the same sign"]})
    return seconds * 1_000 - -nanos // NANOS_IN_MS


def path_on_the_wire(path: str) -> str:
    """`adds[0].timespec` is `created[0].not_before`; what is wrong as a whole is the request."""
    what, dot, field = path.partition(".")
    name, bracket, place = what.partition("[")
    if name == "updates":  # There is one change only, for all that match.
        return f"prototype.{field}"
    return NAMES.get(name, name) + bracket + place + dot + NAMES.get(field, field) if path else "request"
