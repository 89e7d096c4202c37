"""Commands about batches."""

from __future__ import annotations

from collections.abc import Iterator

import click

from .. import endpoints
from ..types.batches import Batch
from ..types.tasks import NewTask
from . import made, parameter_types
from .base import Scope, Session, as_json, command
from .tables import Column, exact, number

NO_BATCH = "batch {id} does not exist: `batches list` lists batches"


@click.group("batches")
def batches() -> None:
    """Batches: tasks that end together, and what is added when they have."""


made.lists(
    "list",
    endpoints.BATCHES,
    (
        Column[Batch]("batch", lambda each: each.id, is_number=True, style="bold"),
        Column[Batch]("name", lambda each: each.name, is_long=True),
        Column[Batch]("state", lambda each: each.state),
        Column[Batch]("tasks", lambda each: number(each.total), is_number=True),
        Column[Batch]("open", lambda each: number(each.open), is_number=True),
        Column[Batch]("failed", lambda each: number(each.failed), is_number=True),
        Column[Batch]("ended", lambda each: number(each.ended), is_number=True),
    ),
    items=lambda page: page.batches,
    nothing="no batches",
    help="List batches, newest first.",
    below=batches,
)


def _facts(batch: Batch) -> Iterator[tuple[str, object]]:
    yield "batch", batch.id
    yield "name", batch.name
    yield "state", batch.state
    for name in ("total", "open", "failed", "ended"):
        yield "tasks" if name == "total" else name, number(getattr(batch, name))
    yield "created", exact(batch.created_at_ms)
    yield "closed", exact(batch.closed_at_ms) if batch.closed_at_ms else None
    yield "problem", batch.problem or None
    yield "part of batch", batch.parent
    yield "open batches within", batch.children or None


made.shows("show", endpoints.BATCH, _facts, missing=NO_BATCH, help="Show a batch.", below=batches)


def task_in(text: str) -> NewTask:
    """Parse a task such as report or report=DATA."""
    group, _, data = text.partition("=")
    if not group:
        raise click.BadParameter(f"must be GROUP or GROUP=DATA, not {text}")
    return NewTask(group=group, data=data.encode())


@command("create", needs=Scope.WORK, below=batches)
@click.argument("name", default="")
@click.option("--then", multiple=True, type=task_in, metavar="GROUP[=DATA]", help="A task to add when it closes.")
@click.option("--on-failure", multiple=True, type=task_in, metavar="GROUP[=DATA]", help="A task to add if one fails.")
@click.option(
    "--parent",
    type=parameter_types.ID,
    default=None,
    metavar="ID",
    help="A batch that stays open until this one closes.",
)
@click.option("--failed-ends", is_flag=True, help="Count failed tasks as succeeded.")
def create(
    session: Session,
    name: str,
    then: tuple[NewTask, ...],
    on_failure: tuple[NewTask, ...],
    parent: int | None,
    failed_ends: bool,
) -> None:
    """Create a batch, which is held open until it is released, and print its id.

    \b
    id=$(taskstore batches create "import 42" --then report)
    taskstore add mail --lines --batch $id < addresses.txt
    taskstore batches release $id
    """
    new = session.store.batches.create(
        name, then=then, on_failure=on_failure, parent=parent or 0, hold=True, failed_ends=failed_ends
    ).batch
    if not session.tell([as_json(new)]):
        click.echo(new.id)


made.does(
    "release",
    endpoints.RELEASE_BATCH,
    lambda batch: f"batch {batch.id} is {batch.state}{batch.problem and f': {batch.problem}'}",
    missing=NO_BATCH,
    help="Let a batch close when its tasks have ended. If those who planned what it adds have lost their rights, "
    "operators take it over.",
    below=batches,
)
made.does(
    "complete",
    endpoints.COMPLETE_BATCH,
    lambda batch: f"batch {batch.id} is {batch.state}{batch.problem and f': {batch.problem}'}",
    missing=NO_BATCH,
    help="Count failed tasks of a batch as succeeded, so that it closes when no others are open.",
    below=batches,
)
made.does(
    "delete",
    endpoints.DELETE_BATCH,
    lambda operation: f"deletes {number(operation.expected)} tasks: operation {operation.id}",
    missing=NO_BATCH,
    help="Delete a batch with its tasks. It adds nothing; `undo` opens it again.",
    below=batches,
)
