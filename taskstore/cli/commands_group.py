"""The command `commands`, and the helpers that its parts share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from ..types.command_record import DEFAULT_PROJECT, CommandStatus
from ..types.commands import CommandWhole
from .base import Failure, Session

T = TypeVar("T")

MOST = 200  # A page.

project = click.option("--project", default=DEFAULT_PROJECT, show_default=True, metavar="NAME")


@click.group("commands")
def commands() -> None:
    """Run shell commands on a pool of machines, and see their results."""


def statuses(choices: Sequence[CommandStatus]) -> Callable[[Any], Any]:
    return click.option("--status", type=click.Choice([each.value for each in choices]))


def paged(page_of: Callable[[str | None, int], tuple[Sequence[T], str | None]], limit: int) -> Iterator[T]:
    """Yield up to `limit` items of consecutive pages; 0: all.

    `page_of`: takes the start and the size of a page, returns its items and the start of the next page.
    """
    after, left = None, limit
    while True:
        things, after = page_of(after, min(left, MOST) if limit else MOST)
        yield from things
        left -= len(things)
        if after is None or (limit and left <= 0):
            return


def found(session: Session, project: str, id: str) -> CommandWhole:
    """Return the command with this id. Raises Failure if it does not exist."""
    whole = session.store.commands.get(project, id)
    if whole is None:
        raise Failure(f"command {id} does not exist in the project {project}")
    return whole
