"""The base of every command: its common options, its session and outputs, and its failures."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from functools import cached_property
from typing import IO, Any, Concatenate, ParamSpec, TypeVar

import click
import msgspec
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..client.client import Client
from ..client.errors import NotAllowed, TooOften
from ..errors import CommitRefused, InvalidInput, StoreBusy, StoreUnavailable, TaskStoreError
from .tables import now_ms as now_ms
from .tables import printable

P = ParamSpec("P")

LONGEST_SENTENCE = 200  # Characters.
TERMS = "terms"  # The argument of a command that searches.
NEGATED = re.compile(r"-[a-z]+(\.[^:]*)?:")  # Also a label: -label.Tier2:gold.

T = TypeVar("T")

PATIENCE_S = 3.0  # Short, because a person waits.
WIDE = 10_000  # Without a terminal nothing is cut.

OTHER_GROUP = "has no access to the group"  # The scope is sufficient.
SWITCHED_OFF = "are off on this server"  # No token is sufficient.
NEEDS_COMMANDS = "needs a token with the scope commands"  # The scope that the command needs is not sufficient.


class Session:
    """The session of one command. `where`: the arguments of its Client, which is created on first use."""

    def __init__(self, *, url: str | None, token: str | None, is_json: bool, client_id: int | None = None) -> None:
        self.where: dict[str, Any] = {"url": url, "token": token, "client_id": client_id}
        self.is_json = is_json
        self.out = console(sys.stdout)
        self.err = console(sys.stderr)

    @cached_property
    def store(self) -> Client:
        return Client(**self.where, patience_s=PATIENCE_S)

    @property
    def address(self) -> str:
        """The server's address; empty if the command sent no request."""
        return self.store.url if "store" in vars(self) else ""

    def close(self) -> None:
        if "store" in vars(self):
            self.store.close()

    def typed(self, command: str) -> str:
        """Return a command as the user types it here for the same server."""
        root = click.get_current_context().find_root()
        options = getattr(root.command, "options", "")
        if self.where["url"]:
            options += f" --url {shlex.quote(self.where['url'])}"
        if self.where["token"]:
            options += " --token TOKEN"  # Don't print the secret.
        return f"{root.info_name} {command}{options}"

    def typed_on_server(self, command: str) -> str:
        """Return a command as an administrator types it on the server's machine."""
        if self.where["url"] or os.environ.get("TASKSTORE_URL"):
            return f"taskstore {command}"
        root = click.get_current_context().find_root()
        return f"{root.info_name} {command}{getattr(root.command, 'options', '')}"

    def show(self, what: RenderableType) -> None:
        if self.out.is_terminal:
            self.out.print(what)
            return
        with self.out.capture() as told:
            self.out.print(what)
        # Remove the padding of the last column.
        click.echo("\n".join(line.rstrip() for line in told.get().splitlines()))

    def some(self, found: Sequence[T], nothing: str) -> Sequence[T]:
        """Return what was found. Raises Failure if there is nothing, unless the output is JSON, which is then empty."""
        if not (found or self.is_json):
            raise Failure(nothing)
        return found

    def say(self, text: str) -> None:
        """Print a sentence for people, not with --json."""
        if not self.is_json:
            click.echo(printable(text))

    def note(self, text: str) -> None:
        """Print a remark to standard error."""
        click.echo(printable(text), err=True)

    def tell(self, records: Iterable[Mapping[str, Any] | str]) -> bool:
        """With --json, print a line of JSON for each record. Returns whether it did: nothing else is shown then."""
        for record in records if self.is_json else ():
            click.echo(json.dumps(record, ensure_ascii=False))
        return self.is_json

    def progress(self, *, is_shown: bool = True) -> Progress:
        """Return a progress bar on standard error, which shows only on a terminal."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        return Progress(*columns, console=self.err, transient=True, disable=not (is_shown and self.err.is_terminal))


@contextmanager
def telling(session: Session, done: int, so_far: str) -> Iterator[None]:
    """Print how far the command has come if it is interrupted or fails after a first step."""
    try:
        yield
    except (TaskStoreError, KeyboardInterrupt):
        if done:
            session.note(so_far)
        raise


def console(output: Any) -> Console:
    return Console(file=output, highlight=False, markup=False, width=None if output.isatty() else WIDE)


def as_json(answer: msgspec.Struct) -> dict[str, Any]:
    """Return a response as JSON with the API's names. A task becomes a line that `import` accepts."""
    members: dict[str, Any] = msgspec.to_builtins(answer)
    return members


class Failure(click.ClickException):
    """Ends the command with this message."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"taskstore: {printable(self.message)}", err=True, file=file)


class Mistake(Failure):
    exit_code = 2


class Away(Failure):
    exit_code = 3


class Left(Failure):
    exit_code = 3


class Denied(Failure):
    exit_code = 4


class Interrupted(Failure):
    exit_code = 130


def failure_of(problem: TaskStoreError, needs: str, session: Session) -> Failure:
    """Convert an error of the client. `needs`: the scope that the command requires."""
    make = session.typed_on_server(f"token create NAME --scope {needs}")
    match problem:
        case NotAllowed() if SWITCHED_OFF in str(problem) or (needs != "commands" and NEEDS_COMMANDS in str(problem)):
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


class Scope(StrEnum):
    """The scope of a token that a command needs."""

    READ = "read"
    WORK = "work"
    OPERATE = "operate"
    COMMANDS = "commands"  # Shell commands.


class StoreCommand(click.Command):
    """A command whose function takes a Session as its first argument."""

    def __init__(self, *args: Any, needs: Scope, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(["--json", "is_json"], is_flag=True, help="Print JSON for programs, one line per item."),
            click.Option(["--url"], metavar="URL", help="Server address."),
            click.Option(["--token"], metavar="TOKEN", help="Access token."),
        ]
        self._needs = needs

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the first sentence uncut; the list of commands wraps it."""
        return super().get_short_help_str(max(limit, LONGEST_SENTENCE))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a term such as -owner:17 as a search term instead of an option."""
        if TERMS in (param.name for param in self.params) and "--" not in args:
            negated = [arg for arg in args if NEGATED.match(arg)]
            args = [arg for arg in args if not NEGATED.match(arg)] + (["--", *negated] if negated else [])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with closing(session_of(ctx)) as ctx.obj:
            try:
                return super().invoke(ctx)
            except TaskStoreError as problem:
                raise failure_of(problem, self._needs, ctx.obj) from None
            except KeyboardInterrupt:
                raise Interrupted("interrupted") from None


def session_of(ctx: click.Context) -> Session:
    """Return a session made from the common options, which are removed from the parameters."""
    take = ctx.params.pop
    return Session(url=take("url"), token=take("token"), is_json=take("is_json"), client_id=take("client", None))


def command(
    name: str, *, needs: Scope, below: click.Group | None = None
) -> Callable[[Callable[Concatenate[Session, P], None]], click.Command]:
    """Decorate a function as a command; its docstring becomes the help. `below`: the parent command."""

    def made(function: Callable[Concatenate[Session, P], None]) -> click.Command:
        found = click.command(name, cls=StoreCommand, needs=needs)(click.pass_obj(function))
        if below:
            below.add_command(found)
        return found

    return made
