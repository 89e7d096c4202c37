"""What a command works with: the store, and where its answers go."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

import click
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..client.client import Client
from ..errors import TaskStoreError
from .errors import Failure
from .tables import printable

T = TypeVar("T")

PATIENCE_S = 3.0  # Somebody waits.
WIDE = 10_000  # Where no terminal has a width, nothing is cut.


class Session:
    """One command: its client, made when it is needed, and its two outputs. `where`: how a Client is made."""

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
        """Of the server that is asked; empty: none was."""
        return self.store.url if "store" in vars(self) else ""

    def close(self) -> None:
        if "store" in vars(self):
            self.store.close()

    def typed(self, command: str) -> str:
        """The command as one types it here, to ask the same server."""
        root = click.get_current_context().find_root()
        options = getattr(root.command, "options", "")
        if self.where["url"]:
            options += f" --url {shlex.quote(self.where['url'])}"
        if self.where["token"]:
            options += " --token TOKEN"  # A secret is not written anywhere again.
        return f"{root.info_name} {command}{options}"

    def typed_on_server(self, command: str) -> str:
        """A command of the server, as one types it on the machine of the server."""
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
        # The spaces that fill the last column are for a terminal.
        click.echo("\n".join(line.rstrip() for line in told.get().splitlines()))

    def some(self, found: Sequence[T], nothing: str) -> Sequence[T]:
        """What was found. If there is nothing, people are told so and the command fails; JSON has no lines then."""
        if not (found or self.is_json):
            raise Failure(nothing)
        return found

    def say(self, text: str) -> None:
        """A sentence about what was done or found, for people."""
        if not self.is_json:
            click.echo(printable(text))

    def note(self, text: str) -> None:
        """A sentence beside the answer."""
        click.echo(printable(text), err=True)

    def tell(self, records: Iterable[Mapping[str, Any] | str]) -> None:
        """For programs: a line of JSON for each."""
        for record in records:
            click.echo(json.dumps(record, ensure_ascii=False))

    def progress(self, *, is_shown: bool = True) -> Progress:
        """A bar on standard error, where that is a terminal; nothing elsewhere."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        return Progress(*columns, console=self.err, transient=True, disable=not (is_shown and self.err.is_terminal))


@contextmanager
def telling(session: Session, done: int, so_far: str) -> Iterator[None]:
    """Whatever ends the command in here, it tells how far it has come, if anything is done."""
    try:
        yield
    except (TaskStoreError, KeyboardInterrupt):
        if done:
            session.note(so_far)
        raise


def console(output: Any) -> Console:
    return Console(file=output, highlight=False, markup=False, width=None if output.isatty() else WIDE)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
