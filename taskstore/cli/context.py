"""The session of a command: its client and its outputs."""

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
import msgspec
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..client.client import Client
from ..errors import TaskStoreError
from .errors import Failure
from .tables import printable

T = TypeVar("T")

PATIENCE_S = 3.0  # Short, because a person waits.
WIDE = 10_000  # Without a terminal nothing is cut.


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

    def tell(self, records: Iterable[Mapping[str, Any] | str]) -> None:
        """Print a line of JSON for each record."""
        for record in records:
            click.echo(json.dumps(record, ensure_ascii=False))

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


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def as_json(answer: msgspec.Struct) -> dict[str, Any]:
    """Return a response as JSON with the API's names. A task becomes a line that `import` accepts."""
    members: dict[str, Any] = msgspec.to_builtins(answer)
    return members
