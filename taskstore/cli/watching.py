"""The command `watch`: live counts of groups on a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ..errors import StoreUnavailable
from ..types.groups import Stats
from . import parameter_types
from .base import Scope, command
from .context import Session, as_json
from .following import follow
from .read import STATS, of_groups, rows_of
from .tables import exact, table


@command("watch", needs=Scope.READ)
@click.argument("what", nargs=-1, metavar="[GROUP...|ID]", shell_complete=parameter_types.group_names)
@click.option("--project", metavar="NAME", help="Watch the command ID of this project.")
@click.option("--every", "every_ms", type=parameter_types.duration_ms, default="1s", metavar="TIME", show_default=True)
@click.option(
    "--times", type=parameter_types.SIZE, default=0, metavar="N", help="Stop after N updates [default: never]."
)
def watch(session: Session, what: Sequence[str], project: str | None, every_ms: int, times: int) -> None:
    """Show live counts of each group until Ctrl-C, or the progress of a task, job or command until it ends.

    A single number is the ID of a task or job. Exit code 1 if it failed. With --json, one line per update.
    """
    if project is not None or (len(what) == 1 and is_id(what[0])):
        if len(what) != 1 or times:
            raise click.UsageError("give one ID, without --times, to watch a task, job or command")
        follow(session, what[0], project, every_ms / 1_000)
        return
    groups = what
    looks = islice(look(session, every_ms / 1_000), times or None)
    with suppress(KeyboardInterrupt):  # The normal end.
        if session.is_json:
            session.tell(records(looks, groups))
        else:
            show(session, (picture(found, groups, trouble) for found, trouble in looks))


def is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text) <= parameter_types.LARGEST


def show(session: Session, pictures: Iterable[RenderableType]) -> None:
    """Print each picture, on a terminal in place of the previous one."""
    if not session.out.is_terminal:
        for each in pictures:
            session.show(each)
        return
    with Live(console=session.out, auto_refresh=False) as live:
        for each in pictures:
            live.update(each, refresh=True)


def records(looks: Iterable[tuple[Stats, str]], groups: Sequence[str]) -> Iterator[dict[str, Any]]:
    for found, _ in looks:
        yield {"at": found.at_ms, "groups": [as_json(each) for each in of_groups(found.groups, groups)]}


def look(session: Session, every_s: float) -> Iterator[tuple[Stats, str]]:
    """Yield the latest counts, and the error if they could not be updated."""
    found, trouble = session.store.stats(), ""
    while True:
        yield found, trouble
        time.sleep(every_s)
        try:
            found, trouble = session.store.stats(), ""
        except StoreUnavailable as away:
            trouble = str(away)


def picture(found: Stats, groups: Sequence[str], trouble: str) -> RenderableType:
    lines: list[RenderableType] = [table(STATS, rows_of(of_groups(found.groups, groups)))]
    if trouble:
        lines.append(Text(f"{trouble}; the numbers shown are older", style="red"))
    return Group(*lines, Text(f"as of {exact(found.at_ms)}; Ctrl-C to stop", style="dim"))
