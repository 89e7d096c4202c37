"""A bulk operation on a terminal: what is asked about before it, and told while it runs and after it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from tasks_app import bulk
from tasks_app.bulk import Parameters, Preview, Verb
from tasks_app.models import BulkOperation
from tasks_app.operations import State
from tasks_app.retention import UNDO_DAYS
from taskstore_project.tables import grouped, lines_of

COLUMNS = ("id", "verb", "of", "state", "done", "by", "began")


def question(verb: Verb, seen: Preview, parameters: Parameters) -> Iterator[str]:
    """What is about to be done, and to what."""
    yield f"{verb} {seen.selection.in_words}{_how(parameters)}:"
    notes = {
        State.READY: f"of which {grouped(seen.ready_already)} are skipped, as nothing failed"
        if verb is Verb.REQUEUE and seen.ready_already
        else "",
        State.CLAIMED: "their leases end" if parameters.takes_claimed else "by workers: they are skipped",
    }
    states = [(state, number, notes.get(state, "")) for state, number in seen.by_state.items() if number]
    rows = [("tasks", grouped(seen.count), f"in {seen.group or 'several groups'}")]
    rows += [(f"  {state}", grouped(number), note) for state, number, note in states]
    yield from lines_of(rows)
    yield f"for example {', '.join(map(str, seen.samples))}"
    yield f"as of {moment(seen.selection.as_of_ms)}: tasks that arrive later are not touched"


def _how(parameters: Parameters) -> str:
    """What is asked for beside the verb; empty: nothing."""
    asked = (
        parameters.to and f"to {parameters.to}",
        parameters.error is not None and f"error {parameters.error!r}",
        parameters.priority is not None and f"priority {parameters.priority}",
        parameters.at_ms and f"available at {moment(parameters.at_ms)}",
        parameters.spread_minutes and f"spread over {parameters.spread_minutes} minutes",
    )
    return "".join(f", {what}" for what in asked if what)


def progress(operation: BulkOperation) -> str:
    handled = operation.done + operation.skipped + operation.failed
    return f"{grouped(handled)} of {grouped(operation.expected)}"


def result(operation: BulkOperation) -> Iterator[str]:
    """How it ended, and how to take it back."""
    skipped = bulk.reasons(operation.pk, operation.gone)
    numbers = f"done {grouped(operation.done)}, skipped {grouped(sum(skipped.values()))}"
    ending = "" if operation.state == BulkOperation.State.DONE else f" ({operation.state})"
    yield f"{numbers}, failed {grouped(operation.failed)}{ending}"
    for why, number in skipped.items():
        yield f"  skipped, {why}: {grouped(number)}"
    if not bulk.why_not_undoable(operation):
        yield f"to take it back within {UNDO_DAYS} days: bulk undo {operation.pk}"


def shown(operation: BulkOperation) -> tuple[str, ...]:
    """For the list, in COLUMNS."""
    return (
        str(operation.pk),
        operation.verb,
        operation.in_words,
        operation.state,
        f"{grouped(operation.done)} of {grouped(operation.expected)}",
        operation.by,
        moment(operation.began_at_ms),
    )


def moment(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
