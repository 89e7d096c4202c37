"""The base of every command that talks to a server: its common options, its session and its failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from enum import StrEnum
from typing import Any, Concatenate, ParamSpec

import click

from ..errors import TaskStoreError
from .context import Session
from .errors import Interrupted, failure_of

P = ParamSpec("P")

LONGEST_SENTENCE = 200  # Characters.
TERMS = "terms"  # The argument of a command that searches.
NEGATED = re.compile(r"-[a-z]+(\.[^:]*)?:")  # Also a label: -label.Tier2:gold.


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
