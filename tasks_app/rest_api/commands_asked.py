"""The bodies of requests about commands, as types (contract.md section 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType
from msgspec.json import Decoder
from msgspec.structs import asdict

from ..command_lists import MOST_AT_ONCE, Submission, wrong_submissions
from ..command_record import FINAL, CommandStatus
from ..pauses import REASON_LENGTH
from ..validation import INT64_MAX, INT64_MIN, Problem, text
from ..wire.scalars import Ids, Int64, Key, Reason
from ..wire.tasks import Asked
from .asked import AskedOperation

MOST_IDS = 10_000
# Out of their range, they are told so with the names of the fields beside them.
Whole = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]


class CommandRequest(Asked, frozen=True, kw_only=True):
    """A line for a shell."""

    cmd: Annotated[str, Meta(description="One line, not empty, at most 64 KiB.")]
    until: (
        Annotated[Whole, Meta(description="It is not started later; seconds since the Epoch. Absent: in 7 days.")]
        | UnsetType
    ) = UNSET
    expected_duration: Annotated[Whole, Meta(description="Seconds. Absent: 60.")] | UnsetType = UNSET
    max_fails: Annotated[Whole, Meta(description="It is given up after so many. Absent: 3.")] | UnsetType = UNSET

    @property
    def submission(self) -> Submission:
        return Submission(**{name: value for name, value in asdict(self).items() if value is not UNSET})


class SubmitRequest(AskedOperation, frozen=True, kw_only=True):
    """Command lines for the workers of a project, in the order in which they are to be started."""

    commands: Annotated[tuple[CommandRequest, ...], Meta(description=f"At most {MOST_AT_ONCE}.")]
    stashed: Annotated[bool, Meta(description="Parked: no list is made of them yet.")] = False
    clientid: Int64 = 0
    key: Key = ""

    @property
    def submissions(self) -> Sequence[Submission]:
        return [each.submission for each in self.commands]

    @property
    def status(self) -> CommandStatus:
        return CommandStatus.NEW_STASHED if self.stashed else CommandStatus.NEW

    def problems(self) -> Iterator[Problem]:
        yield from wrong_submissions(self.submissions)

    def every_problem(self) -> Iterator[Problem]:
        # There is no operation to look at before the project, the time and the ids are known.
        yield from self.problems()


class ReopenRequest(Asked, frozen=True, kw_only=True):
    """Why a list is taken from its worker."""

    reason: Reason = ""

    def problems(self) -> Iterator[Problem]:
        yield from text("reason", self.reason, REASON_LENGTH)


class IdsRequest(ReopenRequest, frozen=True, kw_only=True):
    """Which commands or lists are meant."""

    ids: Annotated[Ids, Meta(description="Of tasks; absent: all that it can be done to.")] | UnsetType = UNSET

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.ids is not UNSET and not 1 <= len(self.ids) <= MOST_IDS:
            yield "ids", f"from 1 to {MOST_IDS} ids, not {len(self.ids)}"

    @property
    def named(self) -> Sequence[int] | None:
        return None if self.ids is UNSET else self.ids


class RetryRequest(IdsRequest, frozen=True, kw_only=True):
    """Which finished commands are to be run once more. Without ids and status: those that failed for good."""

    status: Annotated[CommandStatus, Meta(description="Only those in this status.")] | UnsetType = UNSET

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.status is not UNSET and self.status not in FINAL:
            yield "status", f"one of {', '.join(sorted(FINAL))}"


# msgspec works a type out when it first meets it; two threads that make it do so at the same moment crash the process.
for _asked in (SubmitRequest, ReopenRequest, IdsRequest, RetryRequest):
    Decoder(_asked)
