"""The bodies of requests that need no rules of the store. Unknown fields are rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from .command_record import CommandStatus
from .scalars import Ids, Reason, prepare
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


class CommandLine(Asked, frozen=True, kw_only=True):
    """A line of an import: a command or a list."""

    status: Annotated[str, Meta(extra_json_schema={"enum": [*CommandStatus]})]
    command: Annotated[dict[str, Any] | None, Meta(description="The record of a command.")] = None
    list: Annotated[dict[str, Any] | None, Meta(description="The name and the commands of a list.")] = None


prepare(ReasonRequest, TasksRequest, CommandLine)
