"""Commands of operators that change shell commands and lists: retry, stash, unstash, archive, reopen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..types.command_record import FINAL, RESULTS, CommandStatus
from ..types.commands import ChangedCommands
from . import parameter_types
from .base import Failure, Scope, Session, command
from .commands_files import commands
from .commands_read import found
from .made import project
from .tables import number

ids = click.argument("ids", nargs=-1, metavar="[ID...]")
all_ = click.option("--all", "is_all", is_flag=True, help="All in the project.")
lists = click.option(
    "--list", "lists", type=parameter_types.ID, multiple=True, metavar="TASK", help="A list; may be repeated."
)

NEVER_IN_LISTS = RESULTS | {CommandStatus.NEW, CommandStatus.NEW_STASHED}


@command("retry", needs=Scope.COMMANDS, below=commands)
@ids
@project
@click.option("--status", type=click.Choice([each.value for each in sorted(FINAL)]))
@click.option("--all", "is_all", is_flag=True, help="All commands in failed_count or failed_time.")
@parameter_types.reason
def retry(session: Session, /, project: str, status: str | None, is_all: bool, reason: str, **which: Any) -> None:
    """Run finished commands again as new ones: by ID, by status, or all that failed."""
    if bool(which["ids"]) + bool(status) + is_all != 1:
        raise click.UsageError("give exactly one of IDs, --status and --all")
    named = chosen(session, project, is_all=bool(status) or is_all, **which)
    tell(
        session,
        session.store.commands.retry(project, named, status=CommandStatus(status) if status else None, reason=reason),
        "queued again",
    )


def _changing(verb: str, what: str, help: str, *options: Any) -> None:
    """Make the command that changes commands, and with the option `lists` also lists."""

    def change(session: Session, /, project: str, reason: str, **which: Any) -> None:
        changed = getattr(session.store.commands, verb)(project, chosen(session, project, **which), reason)
        tell(session, changed, what, "command or list" if lists in options else "command")

    change.__doc__ = help
    for option in reversed((ids, *options, all_, project, parameter_types.reason)):
        change = option(change)
    command(verb, needs=Scope.COMMANDS, below=commands)(change)


_changing("stash", "stashed", "Hold back new commands and open lists until they are unstashed.", lists)
_changing("unstash", "unstashed", "Release stashed commands and lists.", lists)
_changing("archive", "archived", "Archive completed commands.")


@command("reopen", needs=Scope.COMMANDS, below=commands)
@click.argument("task", type=parameter_types.ID)
@project
@parameter_types.reason
def reopen(session: Session, /, task: int, project: str, reason: str) -> None:
    """Reopen a list whose worker is known to be dead, by its task id."""
    changed = session.store.commands.reopen(project, task, reason)
    if not changed.changed:
        raise Failure(f"list {task} of the project {project} does not exist or is not running")
    tell(session, changed, "open again", "list")


def chosen(
    session: Session, project: str, *, ids: Sequence[str], is_all: bool, lists: Sequence[int] = ()
) -> Sequence[int] | None:
    """Return the ids of the selected tasks; None for all."""
    if bool(ids or lists) == is_all:
        raise click.UsageError("give either IDs or --all")
    return None if is_all else [*tasks_of(session, project, ids), *lists]


def tasks_of(session: Session, project: str, ids: Sequence[str]) -> list[int]:
    """Return the task ids of commands. Raises Failure for a command in a list, which would affect others."""
    seen = [found(session, project, id).newest for id in ids]
    for each in seen:
        if each.status not in NEVER_IN_LISTS:
            raise Failure(f"command {each.id} is in list {each.task}, which is {each.status}")
    return [each.task for each in seen]


def tell(session: Session, asked: ChangedCommands, what: str, one: str = "command") -> None:
    changed = asked.changed
    session.tell([{"changed": changed}])
    many = " or ".join(f"{each}s" for each in one.split(" or "))
    session.say(f"{number(changed)} {one if changed == 1 else many} {what}")
