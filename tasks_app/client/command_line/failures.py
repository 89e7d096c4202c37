"""What went wrong, as a line on standard error and an exit code.

Failure          1  refused, or nothing there
  Mistake        2  typed wrongly
  Away           3  the server can't be reached, or can't answer now
  Denied         4  not allowed
  Interrupted  130  Ctrl-C
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any, TypeVar

import click

from ...errors import CommitRefused, InvalidInput, StoreBusy, StoreUnavailable, TaskStoreError
from ..errors import NotAllowed, TooOften
from .words import printable

T = TypeVar("T")

OTHER_GROUP = "may not touch the group"  # The scope would do.
SWITCHED_OFF = "are off on this server"  # No token would do.


class Failure(click.ClickException):
    """The command ends with this line."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"taskstore: {printable(self.message)}", err=True, file=file)


class Mistake(Failure):
    exit_code = 2


class Away(Failure):
    exit_code = 3


class Denied(Failure):
    exit_code = 4


class Interrupted(Failure):
    exit_code = 130


def some(found: Sequence[T], nothing: str) -> Sequence[T]:
    """What was found. Where that is nothing, the command ends and says so."""
    if not found:
        raise Failure(nothing)
    return found


def failure_of(problem: TaskStoreError, needs: str, address: str) -> Failure:
    """`needs`: the scope that a token has to have for the command; `address`: of the server."""
    match problem:
        case NotAllowed() if SWITCHED_OFF in str(problem):
            return Denied(str(problem))
        case NotAllowed() if OTHER_GROUP in str(problem):
            remedy = "`token create NAME --groups` makes one for other groups, for --token or TASKSTORE_TOKEN"
            return Denied(f"{problem} On the server's machine {remedy}")
        case NotAllowed():
            remedy = f"on the server's machine `token create NAME --scope {needs}` makes one, for --token"
            return Denied(f"{problem} This needs a token of the scope {needs}: {remedy} or TASKSTORE_TOKEN")
        case StoreBusy() | TooOften():
            return Away(str(problem))
        case StoreUnavailable():
            return Away(f"{problem} ({address}; --url or TASKSTORE_URL names another server)")
        case InvalidInput():
            return Mistake(str(problem))
        case CommitRefused() if problem.refusal.bugs:
            return Mistake(str(problem))
    return Failure(str(problem))
