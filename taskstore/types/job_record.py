"""Jobs as the data of tasks: a function, its arguments and its result (contract.md section 7). Pure.

A job is a task in the group `jobs/QUEUE`, once finished in `jobs/QUEUE/succeeded` or `jobs/QUEUE/failed`. Its data is a
JSON object with the members of `JobRecord`, which workers in any language can read and write. The origin of the task is
the id of the job.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from . import sentences
from .checks import MORE, MOST, Name, Number, Record
from .scalars import LABEL_LENGTH, ONE_PART, prepare
from .sentences import no_json, text
from .tasks import NewTask, Problem, State
from .texts import clean

DEFAULT_QUEUE = "default"
NO_LABELS: Mapping[str, str] = {}
PREFIX = "jobs/"
FUNCTION_LABEL = "function"  # Finds the jobs of a function.
LEFT_LABEL = "unknown_function"  # Finds the jobs that workers without the function have left to others.
RESULT_FOR, RESULT_PLACE = "result_for", "result_place"  # For which step of a chain a result is, and its place there.
RESULT: Any = {"taskstore": "RESULT"}  # The argument; a chain adds to it where the result is.
OWN_LABELS = frozenset({FUNCTION_LABEL, LEFT_LABEL, RESULT_FOR, RESULT_PLACE})
UNLINKED = b'{"taskstore":"RESULT"}'
NO_STEP_BEFORE = "RESULT needs a step before it, as in chain(fetch.s(1), parse.s(RESULT))"
LONGEST_LOG = 16 * 2**10  # Characters kept from the end of the output.
LONGEST_FUNCTION = 255  # Characters, the limit of a label.
LONGEST_QUEUE = 240  # Characters, because it is a part of a group's name.

QueueName = Annotated[str, Meta(max_length=LONGEST_QUEUE, pattern=ONE_PART)]
Times = Annotated[int, Meta(ge=1, le=1_000_000)]
Limit = Annotated[int, Meta(ge=1, le=MOST)]


class JobStatus(StrEnum):
    """The status of a job."""

    SCHEDULED = "scheduled"  # Not due yet.
    PENDING = "pending"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINISHED = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED})


class OnLost(StrEnum):
    """Whether to retry a job whose worker died."""

    RETRY = "retry"
    FAIL = "fail"


class How(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # The function raised an exception.
    DIED = "died"  # Its process ended early: killed, out of memory, os._exit.
    TIMED_OUT = "timed out"
    LOST = "lost"  # Its worker died, or lost the lease.
    CANCELLED = "cancelled"  # Somebody cancelled the job. Its record says so only once it is requeued.
    GIVEN_BACK = "given back"  # The worker stopped. Does not count as an attempt.
    SNOOZED = "snoozed"  # The function is to be called again later. Does not count as an attempt.
    NOT_STARTED = "not started"  # Its worker died before it recorded the start, or it had expired. Does not count.
    AWAY = "store away"  # For longer than the lease. The worker claimed it again, and it did not count as an attempt.


UNKNOWN_FUNCTION = "UnknownFunction"  # The error of the attempt of a worker that lacks the function.
FAILURES = frozenset({How.FAILED, How.DIED, How.TIMED_OUT})
UNCOUNTED = frozenset({How.GIVEN_BACK, How.SNOOZED, How.NOT_STARTED, How.AWAY})


class NotAJob(ValueError):
    """The data of a task is not a valid job. The message says why."""


class JobError(Struct, frozen=True, kw_only=True):
    """The error of a failed attempt."""

    type: Name  # The class of the exception, with its module except for builtins.
    message: str = ""
    traceback: str = ""

    @property
    def line(self) -> str:
        """The error in one line, as the error of the task."""
        first = self.message.strip().partition("\n")[0]
        return clean(f"{self.type}: {first}" if first else self.type)


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt to run a job. Times are milliseconds since the Epoch, by the worker's clock."""

    started: Number = 0  # 0: unknown.
    ended: Number = 0  # 0: it has not ended.
    how: How | None = None  # None: it has not ended.
    worker: str = ""
    host: str = ""
    pid: Number = 0  # The process that ran the function.
    error: JobError | None = None
    final: bool = False  # It finished the job. After a requeue, counting starts again.
    times: Number = 1  # It stands for so many such attempts, one after the other.

    @property
    def lacked_function(self) -> bool:
        """Whether its worker gave the job back because it does not have the function."""
        return self.how is How.GIVEN_BACK and self.error is not None and self.error.type == UNKNOWN_FUNCTION

    def continues(self, before: Attempt) -> bool:
        """Whether it is recorded together with the attempt before."""
        is_same = self.how in (How.SNOOZED, How.AWAY) and before.how is self.how
        return is_same or (self.lacked_function and before.lacked_function)


class JobOptions(Struct, frozen=True, kw_only=True):
    """How a worker runs a job. None: as the function's decorator says, otherwise the default."""

    max_attempts: Annotated[Times, Meta(description="The maximum number of attempts; default 1.")] | None = None
    backoff_ms: (
        Annotated[
            Number,
            Meta(
                description="The pause before the second attempt, doubled for each further one up to an hour; default "
                "1000."
            ),
        ]
        | None
    ) = None
    timeout_ms: Annotated[Limit, Meta(description="The time limit of one attempt; default unlimited.")] | None = None
    memory_bytes: (
        Annotated[
            int, Meta(ge=2**20, le=2**50, description="The memory limit of all its processes; default unlimited.")
        ]
        | None
    ) = None
    on_lost: (
        Annotated[OnLost, Meta(description="What happens to the job if its worker dies; default retry.")] | None
    ) = None
    max_lost: (
        Annotated[Times, Meta(description="The number of times its worker may die before the job fails; default 3.")]
        | None
    ) = None
    ignore_result: Annotated[bool, Meta(description="Keep null as its result; default false.")] | None = None
    soft_time_limit_ms: (
        Annotated[Limit, Meta(description="After this time an attempt gets an exception; default never.")] | None
    ) = None
    expires_ms: (
        Annotated[
            Limit, Meta(description="How long after it is due a job that nobody has begun is cancelled; default never.")
        ]
        | None
    ) = None

    @property
    def given(self) -> dict[str, Any]:
        """Those that are not None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def packed(self) -> Mapping[str, Any]:
        return self.given

    @lru_cache  # noqa: B019 - small and few. Workers ask for the same ones for each job.
    def over(self, declared: JobOptions) -> JobOptions:
        """Return these options, with those of the function where none are given, and otherwise the defaults."""
        return JobOptions(**(DEFAULTS.given | declared.given | self.given))

    @lru_cache  # noqa: B019
    def filled(self) -> RunOptions:
        """Return them with the defaults."""
        return RunOptions(**self.given)


class RunOptions(JobOptions, frozen=True, kw_only=True):
    """The options with which a job is run, with the defaults."""

    max_attempts: int = 1
    backoff_ms: int = 1_000
    on_lost: OnLost = OnLost.RETRY
    max_lost: int = 3
    ignore_result: bool = False


GIVEN_NONE, DEFAULTS = JobOptions(), RunOptions()


class JobRecord(Record, frozen=True, kw_only=True):
    """The data of a job's task."""

    called, error_class, keeps_unknown = "record of a job", NotAJob, True

    function: Name  # Its dotted path.
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    options: JobOptions = GIVEN_NONE
    attempts: tuple[Attempt, ...] = ()  # Oldest first; the last may be under way.
    result: Any = None
    error: JobError | None = None  # Of the last attempt, if it failed.
    log: str = ""  # The end of the last attempt's output.
    due: Number = 0  # When it was to begin, if later than it was added.
    # Members that other programs have added.
    more: Mapping[str, Any] = msgspec.field(name=MORE, default_factory=dict)

    def packed(self) -> Mapping[str, Any]:
        """Return its members, for `encode`."""
        return {**{name: getattr(self, name) for name in OWN_MEMBERS}, **self.more}

    def expired_ms(self, created_ms: int) -> int | None:
        """Return since when it is not worth beginning, if it has not been begun; None: it is, for good."""
        is_new = all(each.lacked_function for each in self.attempts)
        return (self.due or created_ms) + self.options.expires_ms if self.options.expires_ms and is_new else None

    @property
    def counted(self) -> tuple[Attempt, ...]:
        """The attempts that count: those since the job was last finished, of the ways to end that count."""
        since = max((place for place, each in enumerate(self.attempts, 1) if each.final), default=0)
        return tuple(each for each in self.attempts[since:] if each.how not in UNCOUNTED)

    @property
    def next_attempt(self) -> int:
        """The number of the attempt that comes next."""
        return 1 + sum(attempt.how in FAILURES for attempt in self.counted)

    @property
    def lacks_function(self) -> Attempt | None:
        """The attempts since its workers have lacked the function; None if the last one had it."""
        last = self.attempts[-1] if self.attempts else None
        return last if last and last.lacked_function else None

    @property
    def under_way(self) -> Attempt | None:
        last = self.attempts[-1] if self.attempts else None
        return last if last and last.how is None else None

    def requeued(self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None) -> Self:
        """Return the record of the job to run again, with new arguments; None keeps the old ones.

        Earlier attempts stay in the record but no longer count.
        """
        return replace(
            self,
            args=self.args if args is None else args,
            kwargs=self.kwargs if kwargs is None else kwargs,
            attempts=(
                *self.attempts[:-1],
                *(replace(last, final=True, how=last.how or How.CANCELLED) for last in self.attempts[-1:]),
            ),
            result=None,
            error=None,
            log="",
        )

    def with_attempt(self, attempt: Attempt, **changes: Any) -> Self:
        """Return the record with an attempt added, replacing one under way, and other members changed."""
        before = self.attempts[:-1] if self.under_way else self.attempts
        if before and attempt.continues(before[-1]):
            attempt = replace(attempt, started=before[-1].started, times=before[-1].times + 1)
            before = before[:-1]
        return replace(self, attempts=(*before, attempt), **changes)


OWN_MEMBERS = tuple(name for name in JobRecord.__struct_fields__ if name != "more")
SHOWN_MEMBERS = tuple(name for name in JobRecord.__struct_fields__ if name != "due")  # The members of a Job, too.


@dataclass(frozen=True, kw_only=True)
class JobCall:
    """A job to enqueue, with the arguments of `Jobs.enqueue`."""

    function: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str = DEFAULT_QUEUE
    at_ms: int = 0
    priority: int = 0
    options: JobOptions = GIVEN_NONE
    unique: str | None = None
    unique_for_ms: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


def queue_group(queue: str) -> str:
    """Return the group of a queue's unfinished jobs."""
    return f"{PREFIX}{queue}"


def finished_group(queue: str, status: JobStatus) -> str:
    return f"{PREFIX}{queue}/{status}"


def groups_of(queue: str) -> tuple[str, ...]:
    """Return the groups of a queue's unfinished jobs, and of its finished ones by status."""
    return (queue_group(queue), *(finished_group(queue, status) for status in JobStatus if status in FINISHED))


def queue_of(group: str) -> str | None:
    """Return the queue of a group; None for a group without jobs."""
    if not group.startswith(PREFIX):
        return None
    queue, _, end = group.removeprefix(PREFIX).partition("/")
    return queue if queue and end in ("", *FINISHED) and group != f"{PREFIX}{queue}/" else None


def group_to_wait_in(group: str) -> str | None:
    """Return the group to which a requeue moves jobs of this group; None for a group without finished jobs."""
    queue = queue_of(group)
    return queue_group(queue) if queue and group != queue_group(queue) else None


def status_of(group: str, state: State, *, is_later: bool = False) -> JobStatus:
    """Return the status of a job from the group and the state of its task. `is_later`: it is not yet available."""
    end = group.rpartition("/")[2]
    if group.count("/") > 1 and end in FINISHED:
        return JobStatus(end)
    return JobStatus.STARTED if state is State.CLAIMED else JobStatus.SCHEDULED if is_later else JobStatus.PENDING


def lacks_step(task: NewTask) -> bool:
    """Return whether the task is a job that takes the result of a step before it, and follows none."""
    return task.group.startswith(PREFIX) and UNLINKED in task.data


def why_no_queue(name: str) -> str | None:
    """Return the rule that this name of a queue violates; None if it is valid."""
    if not isinstance(name, str) or not name or "/" in name or "\0" in name:
        return sentences.NO_SLASH
    return sentences.at_most(LONGEST_QUEUE, "characters", len(name)) if len(name) > LONGEST_QUEUE else None


def problems_of(
    queue: str, record: JobRecord, labels: Mapping[str, str] = NO_LABELS, most_labels: int | None = None
) -> Iterator[Problem]:
    """Yield the problems of a job's queue, function, arguments and labels."""
    yield from wrong_labels(labels)
    if most_labels is not None and len(labels) > most_labels:
        yield "labels", sentences.at_most(most_labels, "labels", len(labels))
    if why := why_no_queue(queue):
        yield "queue", why
    if not record.function:
        yield "function", sentences.DOTTED_PATH
    yield from text("function", record.function, LONGEST_FUNCTION)
    for name, value in (("args", record.args), ("kwargs", record.kwargs)):
        yield from no_json(name, value)


def wrong_labels(labels: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the problems of the labels that a job is given."""
    if not (isinstance(labels, Mapping) and all(isinstance(each, str) for pair in labels.items() for each in pair)):
        yield "labels", f"must be texts by name, such as {{'tenant': 'acme'}}, not {labels!r:.100}"
        return
    for name in sorted(OWN_LABELS & labels.keys()):
        yield f"labels.{name}", "must be absent: the store sets this label"
    for name, value in labels.items():
        yield from text("labels", name, LABEL_LENGTH)
        yield from text(f"labels.{name}", value, LABEL_LENGTH)


def new_task(
    record: JobRecord,
    *,
    queue: str = DEFAULT_QUEUE,
    at_ms: int = 0,
    priority: int = 0,
    unique: str | None = None,
    unique_for_ms: int = 0,
    labels: Mapping[str, str] = NO_LABELS,
) -> NewTask:
    """Return a new task for a job. `at_ms`: as `timespec_ms` of NewTask. `unique`, `unique_for_ms`: as of NewTask.

    Raises TypeError or ValueError if the arguments are not JSON.
    """
    if at_ms:
        record = replace(record, due=at_ms if at_ms > 0 else time.time_ns() // 1_000_000 - at_ms)
    return NewTask(
        group=queue_group(queue),
        data=record.encode(),
        timespec_ms=at_ms,
        priority=priority,
        labels={**labels, FUNCTION_LABEL: record.function},
        unique=unique,
        unique_for_ms=unique_for_ms,
    )


def not_recorded(record: JobRecord, claims: int) -> int:
    """Return how many earlier claims left no finished attempt, because the worker died.

    `claims`: the count of the task just claimed. An attempt recorded as under way is included.
    """
    return max(0, claims - 1 - sum(attempt.times for attempt in record.attempts if attempt.how is not None))


prepare(JobRecord)
