"""What operators do to many tasks: shown first, done in the background by the server, and undone if need be."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

from ...errors import InvalidInput
from ..answers import Operation, Preview
from . import kinds
from .command import Scope, command
from .failures import Failure, Interrupted, Mistake, some
from .records import as_json
from .session import Session, now_ms
from .tables import Column, facts, table
from .words import exact, number, printable, relative

LOOK_EVERY_S = 0.5
# What has changed meanwhile, or was not agreed to. All else was typed wrongly.
REFUSALS = {"expected", "typed", "operation"}
RUNNING, DONE = "running", "done"
COLUMNS = (
    Column(title="operation", is_number=True, style="cyan"),
    Column(title="verb", style="bold"),
    Column(title="of", is_long=True),
    Column(title="state"),
    Column(title="done", is_number=True),
    Column(title="began"),
    Column(title="by", is_long=True),
    Column(title="reason", is_long=True),
)

Options = dict[str, Any]


def changes(function: Callable[..., None]) -> Callable[..., None]:
    """The arguments that every change of many tasks has."""
    for decorate in (
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--type", "typed", default="", metavar="TEXT", help="What would have to be typed to confirm."),
        click.option("--take-claimed", is_flag=True, help="Also what workers hold; their leases end."),
        kinds.reason,
        click.argument("terms", nargs=-1, required=True, metavar="TERM..."),
    ):
        function = decorate(function)
    return function


@command("requeue", needs=Scope.OPERATE)
@click.option("--at", type=kinds.timespec_ms, metavar="TIME", help="2026-01-31T12:00 (UTC), or +10min [default: now].")
@click.option("--spread-minutes", type=kinds.SIZE, metavar="N", help="Over how long, evenly.")
@changes
def requeue(session: Session, at: int | None, spread_minutes: int | None, **asked: Any) -> None:
    """Make tasks available, without owner and error: those with the ids, or all that meet every TERM of a search.

    taskstore requeue group:mail state:failed --spread-minutes 10
    """
    at_ms = now_ms() - at if at is not None and at < 0 else at
    change(session, "requeue", **asked, at_ms=at_ms, spread_minutes=spread_minutes)


@command("move", needs=Scope.OPERATE)
@click.option("--to", required=True, shell_complete=kinds.group_names, metavar="GROUP", help="Where they go.")
@click.option("--create", is_flag=True, help="It may be a new group.")
@changes
def move(session: Session, to: str, create: bool, **asked: Any) -> None:
    """Put tasks into another group: those with the ids, or all that meet every TERM of a search."""
    change(session, "move", **asked, to=to, create=create)


@command("purge", needs=Scope.OPERATE)
@changes
def purge(session: Session, **asked: Any) -> None:
    """Delete tasks, whosever they are: those with the ids, or all that meet every TERM of a search."""
    change(session, "purge", **asked)


def change(
    session: Session, verb: str, *, terms: Sequence[str], yes: bool, typed: str, take_claimed: bool, **options: Any
) -> None:
    """Show what is meant, ask, let the server do it, and follow until it has ended."""
    seen = session.store.bulk_preview(verb, **meant(terms))
    if not seen.count:
        raise Failure("no task meets it: nothing is to be done")
    if not session.is_json:
        session.show(facts(question(verb, " ".join(terms), seen, takes_claimed=take_claimed)))
    typed = agreed(seen, typed, is_agreed=yes)
    with refusals():
        begun = session.store.bulk_start(seen, take_claimed=take_claimed, typed=typed, **options)
    follow(session, begun)


def meant(terms: Sequence[str]) -> Options:
    """Ids, where nothing but ids is named; else the terms of a search."""
    if all(term.isascii() and term.isdigit() for term in terms):
        return {"ids": list(map(int, terms))}
    return {"q": " ".join(terms)}


def question(verb: str, what: str, seen: Preview, *, takes_claimed: bool) -> Iterator[tuple[str, str]]:
    """What is about to be done, and to what."""
    yield verb, what
    yield "tasks", f"{number(seen.count)} in {seen.group or 'several groups'}"
    notes = {"claimed": "their leases end" if takes_claimed else "by workers: they are skipped"}
    if verb == "requeue" and seen.ready_already:
        notes["ready"] = f"of which {number(seen.ready_already)} are skipped, as nothing failed"
    for state, count in seen.by_state.items():
        if count:
            yield f"  {state}", " ".join([number(count), notes.get(state, "")])
    yield "for example", ", ".join(map(str, seen.samples))
    yield "as of", f"{exact(seen.as_of)}: tasks that arrive later are not touched"


def agreed(seen: Preview, typed: str, *, is_agreed: bool) -> str:
    """What was typed to confirm; ends the command when whoever is asked does not agree."""
    if seen.to_type and not typed:
        return answer_to(f"type {seen.to_type} to confirm: ", f"say --yes and --type {seen.to_type!r}")
    if not is_agreed and answer_to("go on? [y/N] ", "say --yes").lower() not in ("y", "yes"):
        raise Failure("nothing was changed")
    return typed


def answer_to(question: str, instead: str) -> str:
    """What is typed on the terminal; where there is none, the command ends and says what to do `instead`."""
    terminal = standard_input()
    if not terminal.isatty():
        raise Mistake(f"nobody can be asked here: {instead}")
    click.echo(printable(question), err=True, nl=False)
    return terminal.readline().strip()


def standard_input() -> TextIO:
    return sys.stdin


@contextmanager
def refusals() -> Iterator[None]:
    """Tells what was refused from what was typed wrongly."""
    try:
        yield
    except InvalidInput as mistake:
        if not REFUSALS & mistake.fields.keys():
            raise
        raise Failure("; ".join(text for texts in mistake.fields.values() for text in texts)) from None


def follow(session: Session, operation: Operation) -> None:
    """Watch the server until it has ended, and tell what came of it."""
    try:
        operation = ended(session, operation)
    except KeyboardInterrupt:
        number = operation.id
        left = f"operation {number} goes on at the server: `cancel {number}` ends it, `undo {number}` takes it back"
        raise Interrupted(left) from None
    if session.is_json:
        session.tell([as_json(operation)])
    for line in result(operation):
        session.say(line)
    if operation.state != DONE or operation.failed:
        raise Failure(f"operation {operation.id} is {operation.state}, {operation.failed} tasks failed")


def ended(session: Session, operation: Operation) -> Operation:
    with session.progress() as progress:
        bar = progress.add_task(f"{operation.verb}, operation {operation.id}", total=operation.expected)
        while operation.state == RUNNING:
            handled = operation.done + operation.skipped + operation.failed + operation.gone
            progress.update(bar, completed=handled)
            time.sleep(LOOK_EVERY_S)
            operation = session.store.operation(operation.id)
    return operation


def result(operation: Operation) -> Iterator[str]:
    """How it ended, and how to take it back."""
    skipped = operation.reasons or {}
    yield f"done {number(operation.done)}, skipped {number(sum(skipped.values()))}, failed {number(operation.failed)}"
    for why, count in skipped.items():
        yield f"  skipped, {why}: {number(count)}"
    if operation.undoable:
        yield f"to take it back: undo {operation.id}"


@command("operations", needs=Scope.OPERATE)
@click.option("--limit", type=click.IntRange(1, 200), default=50, metavar="N", show_default=True, help="How many.")
def operations(session: Session, limit: int) -> None:
    """List what was done to many tasks, the newest first."""
    found = some(session.store.operations(limit=limit).operations, "there is no operation")
    if session.is_json:
        session.tell(map(as_json, found))
        return
    session.show(table(COLUMNS, map(_cells, found)))


def _cells(operation: Operation) -> list[str]:
    return [
        str(operation.id),
        operation.verb,
        operation.selection,
        operation.state,
        f"{number(operation.done)} of {number(operation.expected)}",
        relative(operation.began_at_ms, now_ms()),
        operation.by,
        operation.reason,
    ]


@command("undo", needs=Scope.OPERATE)
@click.argument("operation", type=kinds.ID, metavar="N")
@kinds.reason
def undo(session: Session, operation: int, reason: str) -> None:
    """Take operation N back, but for what has changed since."""
    with refusals():
        begun = session.store.undo_operation(operation, reason)
    follow(session, begun)


@command("cancel", needs=Scope.OPERATE)
@click.argument("operation", type=kinds.ID, metavar="N")
def cancel(session: Session, operation: int) -> None:
    """Let operation N end after what it is at; what is done stays done."""
    found = session.store.operation(operation)
    if found.state != RUNNING:
        raise Failure(f"operation {operation} has ended: it is {found.state}")
    session.store.cancel_operation(operation)
    stopped = ended(session, found)
    if session.is_json:
        session.tell([as_json(stopped)])
    for line in result(stopped):
        session.say(line)
