"""The failures of commands, each a line on standard error and an exit code.

Failure          1  refused, or not found
  Mistake        2  wrong usage
  Away           3  the server can't be reached or is not available now
  Denied         4  not allowed
  Interrupted  130  Ctrl-C
"""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any

import click

from ..client.errors import NotAllowed, TooOften
from ..errors import CommitRefused, InvalidInput, StoreBusy, StoreUnavailable, TaskStoreError
from .tables import printable

if TYPE_CHECKING:
    from .context import Session

OTHER_GROUP = "has no access to the group"  # The scope is sufficient.
SWITCHED_OFF = "are off on this server"  # No token is sufficient.


class Failure(click.ClickException):
    """Ends the command with this message."""

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


def failure_of(problem: TaskStoreError, needs: str, session: Session) -> Failure:
    """Convert an error of the client. `needs`: the scope that the command requires."""
    make = session.typed_on_server(f"token create NAME --scope {needs}")
    match problem:
        case NotAllowed() if SWITCHED_OFF in str(problem):
            return Denied(str(problem))
        case NotAllowed() if OTHER_GROUP in str(problem):
            make = session.typed_on_server(f"token create NAME --scope {needs} --groups GROUP")
            remedy = f"`{make}` creates a token for other groups; pass it as --token or TASKSTORE_TOKEN"
            return Denied(f"{problem} On the server's machine, {remedy}")
        case NotAllowed():
            remedy = f"On the server's machine, `{make}` creates one; pass it as --token or TASKSTORE_TOKEN"
            return Denied(f"{problem} {remedy}")
        case StoreBusy() | TooOften():
            return Away(str(problem))
        case StoreUnavailable():
            remedy = "use --url or TASKSTORE_URL for another server"
            if not session.where["url"] and not os.environ.get("TASKSTORE_URL"):
                remedy += ", --data or TASKSTORE_DATA for the one of another data directory on this machine"
            return Away(f"{problem} ({session.address}; {remedy})")
        case InvalidInput():
            return Mistake(str(problem))
        case CommitRefused() if problem.refusal.bugs:
            return Mistake(str(problem))
    return Failure(str(problem))
