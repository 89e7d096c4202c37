"""The bodies of requests that need no rules of the store. Unknown fields are rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from .command_record import CommandStatus
from .progress import Done
from .progress import problems_of as problems_of_progress
from .scalars import Ids, Int64, Reason, prepare
from .tasks import Problem


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a request. Null members are removed before it is parsed, because they count as absent."""

    def problems(self) -> Iterator[Problem]:
        """Yield the problems that remain although each field has the right type."""
        yield from ()

    def every_problem(self) -> Iterator[Problem]:
        """Yield these problems and those that the store would report."""
        yield from self.problems()


class ReasonRequest(Asked, frozen=True, kw_only=True):
    """A reason, which the audit log records."""

    reason: Reason = ""


class TasksRequest(Asked, frozen=True, kw_only=True):
    """The ids of tasks, if there are too many for a URL."""

    ids: Ids


class ProgressRequest(Asked, frozen=True, kw_only=True):
    """How far a task is. It replaces the previous report."""

    clientid: Int64
    done: Done
    text: Annotated[str, Meta(description="What the task is doing; at most 255 characters.")] = ""

    def problems(self) -> Iterator[Problem]:
        yield from problems_of_progress(self.done, self.text)


class CommandLine(Asked, frozen=True, kw_only=True):
    """A line of an import: a command or a list."""

    status: Annotated[str, Meta(extra_json_schema={"enum": [*CommandStatus]})]
    command: Annotated[dict[str, Any] | None, Meta(description="The record of a command.")] = None
    list: Annotated[dict[str, Any] | None, Meta(description="The name and the commands of a list.")] = None


prepare(ReasonRequest, TasksRequest, ProgressRequest, CommandLine)
