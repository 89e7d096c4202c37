"""Commands that add, claim, update and delete tasks."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import click

from ..errors import CommitRefused
from ..types.tasks import Change, NewTask, Order, Task
from ..units import duration
from . import parameter_types
from .base import Failure, Scope, Session, as_json, command, now_ms, telling
from .change import nothing_found
from .files import counts, pieces, without_mark
from .read import COLUMNS, WITH_GROUP, added, held_by, whole
from .tables import number, table

STDIN = "-"

file = click.option(
    "--file", type=click.File("rb"), metavar="FILE", help="Read the data from a file; - for standard input."
)
data_type = click.option(
    "--type", "data_type", default="", metavar="URL", help="Type URL, for data that is a protobuf Any."
)


@command("add", needs=Scope.WORK)
@parameter_types.group
@click.argument("data", required=False)
@file
@click.option(
    "--lines",
    "by_line",
    is_flag=True,
    help="Add one task per line of the file or of standard input, except blank ones and those that begin with #.",
)
@parameter_types.labels
@parameter_types.priority_of_new
@click.option(
    "--at", type=parameter_types.timespec_ms, default="now", metavar="TIME", help="2026-01-31T12:00 (UTC), or +10min."
)
@data_type
@parameter_types.unique
@parameter_types.unique_for
@click.option("--batch", type=parameter_types.ID, default=None, metavar="ID", help="An open batch that the task joins.")
@parameter_types.client
def add(
    session: Session, /, group: str, data: str | None, file: IO[bytes] | None, by_line: bool, at: int, **fields: Any
) -> None:
    """Add a task to GROUP with DATA or the content of a file; - reads standard input.

    The task's data is an argument: --data selects the server's data directory.
    """
    check_data_option(f"add {shlex.quote(group)}", data, file)
    labels, batch = dict(fields.pop("labels")), fields.pop("batch") or 0
    made = NewTask(group=group, timespec_ms=at, labels=labels, batch=batch, **fields)
    if by_line:
        if made.unique is not None:
            raise click.UsageError("give either --unique or --lines: only one of the tasks could hold the key")
        if data not in (None, STDIN):
            raise click.UsageError("give either DATA or --lines")
        add_lines(session, made, file or sys.stdin.buffer)
        return
    tell_added(session, session.store.commit(adds=[replace(made, data=data_of(data, file) or b"")]))


def add_lines(session: Session, like: NewTask, lines: IO[bytes]) -> None:
    """Add a task for each line that is neither blank nor a comment, in pieces that are applied whole."""
    count = 0
    with session.progress() as progress:
        bar = progress.add_task("adding", total=None)
        for first, piece in pieces(without_mark(lines), counts=counts):
            data = [line.rstrip(b"\r\n") for line in piece if counts(line)]
            with telling(session, count, f"{number(count)} tasks were added, from the lines before line {first}"):
                tasks = session.store.commit(adds=[replace(like, data=each) for each in data])
            count += len(tasks)
            progress.update(bar, completed=count)
            session.tell(map(as_json, tasks))
    session.say(f"added {number(count)} tasks to {like.group}")


def data_of(text: str | None, file: IO[bytes] | None) -> bytes | None:
    """Return the data that was given, or None."""
    if text is not None and file:
        raise click.UsageError("give either DATA or --file")
    if text == STDIN:
        return sys.stdin.buffer.read()
    if file:
        return bytes(file.read())
    return None if text is None else os.fsencode(text)  # The bytes as typed, even if not UTF-8.


def check_data_option(command: str, text: str | None, file: IO[bytes] | None) -> None:
    """Raise UsageError if the task's data was probably given as `--data`, which the program takes as its directory."""
    is_typed = getattr(click.get_current_context().find_root().command, "options", "")
    place = os.environ.get("TASKSTORE_DATA", "")
    if is_typed and text is None and not file and not Path(place).is_dir():
        raise click.UsageError(
            f"`--data` selects the server's data directory, and {place} is not a directory; "
            f"type `{command} {shlex.quote(place)}` to set the task's data"
        )


def tell_added(session: Session, tasks: Sequence[Task]) -> None:
    session.tell(map(as_json, tasks))
    if tasks[0].duplicate:
        session.say(f"nothing was added: {held_by(tasks[0])}")
    else:
        session.say(f"added {added(tasks)} to {tasks[0].group}")


@command("claim", needs=Scope.WORK)
@click.argument("groups", nargs=-1, required=True, shell_complete=parameter_types.group_names)
@click.option(
    "--for", "duration_ms", type=parameter_types.claim_ms, default="1min", metavar="TIME", show_default=True,
    help="Length of the lease.",
)  # fmt: skip
@click.option("--wait", "wait_ms", type=parameter_types.duration_ms, default="0s", metavar="TIME",
              help="How long to wait for a task.")  # fmt: skip
@click.option(
    "--limit", type=parameter_types.Number(1, 1_000), default=1, metavar="N", help="Claim at most N tasks [default: 1]."
)
@click.option("--oldest", is_flag=True, help="Claim the tasks that have been available longest.")
@parameter_types.new_client
def claim(session: Session, /, groups: Sequence[str], duration_ms: int, oldest: bool, **asked: Any) -> None:
    """Claim a task of GROUPS: only you can change it until the lease ends. Exit code 1 if there was none."""
    order = Order.OLDEST if oldest else Order.RANDOM
    tasks = session.store.claim(groups, duration_ms=duration_ms, order=order.value, **asked)
    if not tasks:
        raise Failure(f"no task is available in {', '.join(groups)}")
    if session.tell(map(as_json, tasks)):
        return
    session.show(whole(tasks[0]) if len(tasks) == 1 else table(WITH_GROUP if len(groups) > 1 else COLUMNS, tasks))
    done = session.typed(f"delete {tasks[0].id} --client {tasks[0].owner}")
    session.note(f"leased for {duration(duration_ms)} to client {tasks[0].owner}; when it is done: {done}")


@command("update", needs=Scope.WORK)
@click.argument("id", type=parameter_types.ID)
@click.argument("data", required=False)
@file
@parameter_types.labels
@click.option("--no-labels", is_flag=True, help="Remove all labels.")
@parameter_types.priority
@click.option("--error", metavar="TEXT", help="Error text; '' removes it.")
@click.option(
    "--at",
    "at_ms",
    type=parameter_types.timespec_ms,
    metavar="TIME",
    help="When it becomes available: now, 2026-01-31T12:00 (UTC), or +10min.",
)
@click.option("--release", is_flag=True, help="Let others claim the task now; with --at, from that time.")
@data_type
@parameter_types.client
def update(
    session: Session, /, id: int, data: str | None, file: IO[bytes] | None, at_ms: int | None, **fields: Any
) -> None:
    """Change the data, labels or times of a task. Other fields stay unchanged.

    The task's data is an argument: --data selects the server's data directory. Renew a lease with --at +30s. If the
    task is leased to another client, nothing is changed; exit code 1.
    """
    check_data_option(f"update {id}", data, file)
    labels, given = labels_of(fields), data_of(data, file)
    task = session.store.task(id)
    if task is None:
        raise nothing_found(session, "update", [id])
    change = Change(id=id, labels=labels, priority=fields["priority"], release=fields["release"])
    change = replace(change, data=given, error=fields["error"], data_type=fields["data_type"] or None)
    [made] = session.store.commit(updates=[at_time(change, task, at_ms)])
    session.tell([as_json(made)])
    session.say(f"task {id} is now {made.id}")


def at_time(change: Change, task: Task, at_ms: int | None) -> Change:
    """Return the change with its time. None keeps a present lease or schedule."""
    if at_ms is not None or change.release or task.available_at_ms <= now_ms():
        return replace(change, timespec_ms=at_ms or 0)
    # A future time would lease the task, unless the change releases it.
    is_leased = bool(task.claims and task.owner)
    return replace(change, timespec_ms=task.available_at_ms, release=not is_leased)


def labels_of(fields: dict[str, Any]) -> dict[str, str] | None:
    """Return the new labels, or None to keep them."""
    if fields["labels"] and fields["no_labels"]:
        raise click.UsageError("give either --label or --no-labels")
    return dict(fields["labels"]) if fields["labels"] or fields["no_labels"] else None


@command("delete", needs=Scope.WORK)
@click.argument("ids", type=parameter_types.ID, nargs=-1, required=True, metavar="ID...")
@parameter_types.client
def delete(session: Session, ids: Sequence[int]) -> None:
    """Delete tasks, all or none. Fails if a task is leased to another client; operators can `purge` such tasks."""
    try:
        session.store.commit(deletes=ids)
    except CommitRefused as refused:
        missing = refused.refusal.deletes
        if not missing or refused.refusal.owned:
            raise
        raise nothing_found(session, "delete", sorted(ids, key=lambda id: id not in missing)) from None
    session.tell([{"deleted": list(ids)}])
    session.say(f"deleted {'task' if len(ids) == 1 else 'tasks'} {', '.join(map(str, ids))}")
