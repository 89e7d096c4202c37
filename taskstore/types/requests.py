"""The bodies of requests, as far as they need nothing of the store: a field that is not known is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from .command_record import CommandStatus
from .scalars import Ids, Reason, prepare
from .tasks import Problem


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a request. A member that is null never arrives here: it counts as absent."""

    def problems(self) -> Iterator[Problem]:
        """What is wrong though each field has the right type: by the path of the field."""
        yield from ()

    def every_problem(self) -> Iterator[Problem]:
        """The same, and what the store would say of the values."""
        yield from self.problems()


class ReasonRequest(Asked, frozen=True, kw_only=True):
    """Why somebody does it, for those who wonder later."""

    reason: Reason = ""


class TasksRequest(Asked, frozen=True, kw_only=True):
    """The tasks of these ids, for more of them than fit into an address."""

    ids: Ids


class CommandLine(Asked, frozen=True, kw_only=True):
    """A command, or a list of them, in a line of its own."""

    status: Annotated[str, Meta(extra_json_schema={"enum": [*CommandStatus]})]
    command: Annotated[dict[str, Any] | None, Meta(description="The record of a command.")] = None
    list: Annotated[dict[str, Any] | None, Meta(description="The record of a list: its name and its commands.")] = None


prepare(ReasonRequest, TasksRequest, CommandLine)
