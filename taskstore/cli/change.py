"""Commands that change tasks and groups: the actions on many tasks, undo, cancel, pause, resume."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click
from msgspec.structs import asdict

from .. import endpoints
from ..errors import InvalidInput
from ..types.bulk import ACTIONS, COUNTS_AS_DONE, BulkAction, Kind, Operation, Option, Preview
from ..types.groups import GroupPause
from ..types.scalars import whole
from . import made, parameter_types
from .base import Failure, Interrupted, Mistake, Scope, Session, as_json, command, now_ms
from .read import living
from .tables import Column, exact, facts, number, printable, relative

LOOK_EVERY_S = 0.5
MOST_TARGETS = 10  # Groups that are named.
LONGEST_TEXT = 200  # Characters that the question shows of an option.
# Errors about a changed selection or a missing confirmation; all others are usage errors.
REFUSALS = {"expected", "typed", "operation"}
RUNNING, DONE = "running", "done"
NO_OPERATION = "operation {id} does not exist: `operations` lists operations"

Options = dict[str, Any]


def changes(function: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments that every bulk operation has."""
    for decorate in (
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--type", "typed", default="", metavar="TEXT", help="Confirmation text, for scripts."),
        click.option("--take-claimed", is_flag=True, help="Include claimed tasks; their leases end."),
        parameter_types.reason,
        click.argument("terms", nargs=-1, required=True, metavar="TERM..."),
    ):
        function = decorate(function)
    return function


KINDS: dict[Kind, Options] = {
    Kind.GROUP: {"metavar": "GROUP", "shell_complete": parameter_types.group_names},
    Kind.TEXT: {"metavar": "TEXT"},
    Kind.FLAG: {"is_flag": True},
    Kind.PRIORITY: {"metavar": "N", "type": parameter_types.PRIORITY},
    Kind.TIME: {"metavar": "TIME", "type": parameter_types.timespec_ms},
    Kind.MINUTES: {"metavar": "N", "type": parameter_types.SIZE},
}
TIMES = " 2026-01-31T12:00 (UTC), or +10min [default: now]."


def command_of(action: BulkAction) -> click.Command:
    """Return the command of a bulk action, with one option for each option of the action."""

    @changes
    def do(session: Session, **asked: Any) -> None:
        given = {option: asked.pop(option.name) for option in action.options}
        options = {
            option.name: _sent(option, value)
            for option, value in given.items()
            if value is not None and value is not False
        }
        if action.needs_one and not options:
            ways = " or ".join(f"{flag_of(option)} {KINDS[option.kind]['metavar']}" for option in action.options)
            raise click.UsageError(f"nothing to change: give {ways}, or both")
        change(session, action, options, **asked)

    for option in reversed(action.options):
        description = option.description + (TIMES if option.kind is Kind.TIME else "")
        do = click.option(flag_of(option), help=description, required=option.is_required, **KINDS[option.kind])(do)
    do.__doc__ = action.help
    return command(action.command, needs=Scope.OPERATE)(do)


def flag_of(option: Option) -> str:
    """Return the option's name on the command line."""
    return f"--{option.name.replace('_', '-')}"


def _sent(option: Option, value: Any) -> Any:
    """Convert a relative time to an absolute one by this machine's clock, as the request requires."""
    return now_ms() - value if option.kind is Kind.TIME and value < 0 else value


def change(
    session: Session,
    action: BulkAction,
    options: Options,
    *,
    terms: Sequence[str],
    yes: bool,
    typed: str,
    take_claimed: bool,
    reason: str,
) -> None:
    """Preview a bulk operation, ask for confirmation, start it, and follow it until it has ended."""
    previewed = {each.name: options[each.name] for each in action.options if each.is_previewed and each.name in options}
    seen = session.store.bulk_preview(action.name, **meant(terms), **previewed)
    if not seen.count:
        raise nothing_found(session, action.name, meant(terms).get("ids", []))
    shown = facts(question(action, " ".join(terms), seen, options, takes_claimed=take_claimed or action.of_leases))
    if not session.is_json:
        session.show(shown)
    elif not yes or (seen.to_type and not typed):
        session.err.print(shown)  # The question needs its context.
    typed = agreed(seen, typed, is_agreed=yes)
    with refusals():
        begun = session.store.bulk_start(seen, take_claimed=take_claimed, reason=reason, typed=typed, **options)
    follow(session, begun)


def meant(terms: Sequence[str]) -> Options:
    """Return the selection: ids if all terms are ids, otherwise a search."""
    ids = [whole(term) for term in terms]
    if None not in ids:
        return {"ids": ids}
    return {"q": " ".join(terms)}


def nothing_found(session: Session, verb: str, ids: Sequence[int]) -> Failure:
    """Explain why tasks that a command named don't exist. `ids`: those it named, empty for a search."""
    reasons, current_ids, is_replaced = [], [], False
    for id in ids[:MOST_TARGETS]:
        try:
            current = living(session, id)
        except Failure as problem:
            reasons.append(problem.message)
            continue
        current_ids.append(str(current.id))
        if current.id != id:
            is_replaced = True
            reasons.append(f"task {id} was replaced by task {current.id}")
    remedy = session.typed(f"{verb} {' '.join(current_ids)}")
    advice = f": use `{remedy}` with the same options" if is_replaced and len(ids) <= MOST_TARGETS else ""
    return Failure(f"{'; '.join(reasons) or 'no matching tasks'}, so nothing was changed{advice}")


def question(
    action: BulkAction, what: str, seen: Preview, options: Options, *, takes_claimed: bool
) -> Iterator[tuple[str, str]]:
    """Yield the lines of the summary to confirm."""
    yield action.words, what
    for option in action.options:
        if option.fact and option.name in options:
            yield option.fact, in_words(option, options[option.name])
    yield "tasks", f"{number(seen.count)} in {seen.group or 'several groups'}"
    notes = {"claimed": "their leases end" if takes_claimed else "by workers: they are skipped"}
    if seen.targets is not None and seen.ready_already:
        notes["ready"] = f"of which {number(seen.ready_already)} are skipped because they have not failed"
    for state, count in asdict(seen.by_state).items():
        if count:
            yield f"  {state}", " ".join([number(count), notes.get(state, "")])
    targets = seen.targets or ()
    for target in targets[:MOST_TARGETS]:
        count = target.count + (target.claimed if takes_claimed else 0)
        if count:
            yield "available in", f"{target.group} ({number(count)})"
    if others := targets[MOST_TARGETS:]:
        yield "available in", f"{number(len(others))} more groups ({number(sum(target.count for target in others))})"
    if seen.ended:
        yield "  ended", f"{number(seen.ended)} commands: they are skipped; retry them in their project"
    for batch in () if options.get(COUNTS_AS_DONE.name) else seen.closes[:MOST_TARGETS]:
        yield "closes", f"batch {batch.id} {batch.outcome}"
    if more := seen.closes[MOST_TARGETS:]:
        yield "closes", f"{number(len(more))} more batches"
    yield "for example", ", ".join(map(str, seen.samples))
    yield "as of", f"{exact(seen.as_of)}: tasks added later are not changed"


def in_words(option: Option, value: Any) -> str:
    """Return the value of an option for people."""
    match option.kind:
        case Kind.TIME:
            return exact(value)
        case Kind.MINUTES:
            return f"{number(value)} min"
    text = str(value)
    return (text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}...") or "(none)"


def agreed(seen: Preview, typed: str, *, is_agreed: bool) -> str:
    """Ask for confirmation and return the text typed for it. Raises Failure if the user declines."""
    if seen.to_type and not typed:
        return answer_to(f"type {seen.to_type} to confirm: ", f"use --yes and --type {seen.to_type!r}")
    if not is_agreed and answer_to("continue? [y/N] ", "use --yes").lower() not in ("y", "yes"):
        raise Failure("nothing was changed")
    return typed


def answer_to(question: str, instead: str) -> str:
    """Ask on the terminal and return the answer. Raises Mistake without one, with what to do `instead`."""
    terminal = standard_input()
    if not terminal.isatty():
        raise Mistake(f"confirmation needs a terminal: {instead}")
    click.echo(printable(question), err=True, nl=False)
    return terminal.readline().strip()


def standard_input() -> TextIO:
    return sys.stdin


@contextmanager
def refusals(subject: str = "") -> Iterator[None]:
    """Report refusals as failures that begin with `subject`; other invalid input stays a usage error."""
    try:
        yield
    except InvalidInput as mistake:
        if not REFUSALS & mistake.fields.keys():
            raise
        raise Failure(subject + "; ".join(text for texts in mistake.fields.values() for text in texts)) from None


def follow(session: Session, operation: Operation) -> None:
    """Follow an operation until it has ended, and print its result."""
    try:
        operation = ended(session, operation)
    except KeyboardInterrupt:
        end, undo = session.typed(f"stop {operation.id}"), session.typed(f"undo {operation.id}")
        left = f"operation {operation.id} continues on the server: `{end}` stops it, `{undo}` undoes it"
        raise Interrupted(left) from None
    session.tell([as_json(operation)])
    for line in result(session, operation):
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


def result(session: Session, operation: Operation) -> Iterator[str]:
    """Yield the result of an operation and the command that undoes it."""
    skipped = operation.reasons or {}
    numbers = f"done {number(operation.done)}, skipped {number(sum(skipped.values()))}"
    ending = "" if operation.state == DONE else f" ({operation.state})"
    yield f"{numbers}, failed {number(operation.failed)}{ending}"
    for why, count in skipped.items():
        yield f"  skipped, {why}: {number(count)}"
    if operation.undoable:
        yield f"to undo it: {session.typed(f'undo {operation.id}')}"


operations = made.lists(
    "operations",
    endpoints.OPERATIONS,
    (
        Column[Operation]("operation", lambda each: each.id, is_number=True, style="cyan"),
        Column[Operation]("verb", lambda each: each.verb, style="bold"),
        Column[Operation]("of", lambda each: each.selection, is_long=True),
        Column[Operation]("state", lambda each: each.state),
        Column[Operation]("done", lambda each: f"{number(each.done)} of {number(each.expected)}", is_number=True),
        Column[Operation]("began", lambda each: relative(each.began_at_ms)),
        Column[Operation]("by", lambda each: each.by, is_long=True),
        Column[Operation]("reason", lambda each: each.reason, is_long=True),
    ),
    items=lambda page: page.operations,
    nothing="no operations",
    help="List bulk operations, newest first.",
)


@command("undo", needs=Scope.OPERATE)
@click.argument("operation", type=parameter_types.ID, metavar="N")
@parameter_types.reason
def undo(session: Session, operation: int, reason: str) -> None:
    """Undo operation N, except for tasks that have changed since."""
    with refusals(f"operation {operation}: "):
        begun = made.one(session, endpoints.UNDO_OPERATION, NO_OPERATION, id=operation, reason=reason)
    follow(session, begun)


@command("stop", needs=Scope.OPERATE)
@click.argument("operation", type=parameter_types.ID, metavar="N")
def stop(session: Session, operation: int) -> None:
    """Stop operation N. Changes already made are kept."""
    found = made.one(session, endpoints.OPERATION, NO_OPERATION, id=operation)
    if found.state != RUNNING:
        raise Failure(f"operation {operation} has already ended: it is {found.state}")
    session.store.cancel_operation(operation)
    stopped = ended(session, found)
    session.tell([as_json(stopped)])
    for line in result(session, stopped):
        session.say(line)


def paused(found: GroupPause) -> str:
    if found.paused is None:  # Somebody has resumed it in the meantime.
        return f"{found.group} is not paused"
    why = f". Reason: {found.paused.reason}" if found.paused.reason else ""
    return f"{found.group} is paused (by {found.paused.by}, {relative(found.paused.at_ms)}){why}"


pause = made.does(
    "pause",
    endpoints.PAUSE,
    paused,
    help="Pause GROUP: it hands out no tasks until it is resumed, but commits continue.",
)
resume = made.does(
    "resume",
    endpoints.RESUME,
    lambda found: f"{found.group} is resumed",
    help="Resume GROUP: it hands out its tasks again.",
)

BULK_COMMANDS = {name: command_of(action) for name, action in ACTIONS.items()}
globals().update(BULK_COMMANDS)  # The program looks commands up by name.
