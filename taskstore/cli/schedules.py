"""Commands about schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from ..types.job_record import DEFAULT_QUEUE
from ..types.schedules import DueJob, DueTask, Schedule
from . import parameter_types
from .base import Failure, Scope, Session, as_json, command, now_ms
from .jobs import value_of
from .tables import Column, facts, relative, table, when

COLUMNS = (
    Column(title="schedule", style="bold"),
    Column(title="when", is_long=True),
    Column(title="zone"),
    Column(title="adds", is_long=True),
    Column(title="last"),
    Column(title="next"),
    Column(title="", is_long=True, style="red"),
)

name = click.argument("name")


@click.group("schedule")
def schedule() -> None:
    """Add tasks and jobs on a schedule."""


@command("list", needs=Scope.READ, below=schedule)
def list_schedules(session: Session, /) -> None:
    """List the schedules with their last and next runs."""
    found = session.some(session.store.schedules.list(), "no schedules")
    if session.tell(map(as_json, found)):
        return
    now = now_ms()
    rows = (
        [
            each.name,
            each.in_words or each.cron,
            each.zone,
            adds(each),
            relative(each.last.at_ms, now) if each.last else "",
            relative(each.next_ms, now) if each.next_ms else "",
            each.error or ("paused" if each.paused else ""),
        ]
        for each in found
    )
    session.show(table(COLUMNS, rows))


def adds(found: Schedule) -> str:
    """Describe what a schedule adds."""
    if found.job:
        return f"job {found.job.function}"
    return f"task in {found.task.group}" if found.task else ""


@command("show", needs=Scope.READ, below=schedule)
@name
def show(session: Session, /, name: str) -> None:
    """Show a schedule."""
    found = session.store.schedules.get(name)
    if found is None:
        raise no_schedule(session, name)
    if session.tell([as_json(found)]):
        return
    session.show(facts((title, what) for title, what in _facts(found, now_ms()) if what))


def no_schedule(session: Session, name: str) -> Failure:
    return Failure(f"schedule {name} does not exist: `{session.typed('schedule list')}` lists schedules")


def _facts(found: Schedule, now: int) -> Iterator[tuple[str, str]]:
    yield "schedule", found.name
    yield "when", f"{found.cron} ({found.in_words})" if found.in_words else found.cron
    yield "zone", found.zone
    yield "adds", adds(found)
    yield "missed times", found.catch_up or ""
    yield "last", f"{when(found.last.at_ms, now)}: task {found.last.origin}" if found.last else ""
    yield "next", when(found.next_ms, now) if found.next_ms else ""
    yield "paused", f"by {found.paused.by}, {when(found.paused.at_ms, now)}" if found.paused else ""
    yield "broken", found.error


@command("put", needs=Scope.OPERATE, below=schedule)
@name
@click.argument("cron")
@click.argument("args", nargs=-1, metavar="[ARG...]")
@click.option("--job", "function", metavar="FUNCTION", help="Enqueue this function, with ARGs as its arguments.")
@parameter_types.kwargs
@click.option("--queue", default=DEFAULT_QUEUE, show_default=True, metavar="NAME", help="Queue of the job.")
@click.option(
    "--group",
    metavar="GROUP",
    shell_complete=parameter_types.group_names,
    help="Add a task to this group, with ARG as its data.",
)
@parameter_types.labels
@parameter_types.priority_of_new
@click.option(
    "--zone", default="UTC", show_default=True, metavar="ZONE", help="Time zone of the schedule, such as Europe/Berlin."
)
@click.option("--catch-up", type=click.Choice(["skip", "latest", "all"]), default="skip", show_default=True,
              help="What to do about runs missed while no server was running.")  # fmt: skip
@parameter_types.reason
def put(session: Session, /, name: str, cron: str, zone: str, catch_up: str, reason: str, **added: Any) -> None:
    """Create the schedule NAME, or replace it.

    taskstore schedule put nightly "0 3 * * *" --job reports.build 2026 --zone Europe/Berlin
    """
    if bool(added["function"]) == bool(added["group"]):
        raise click.UsageError("give either --job FUNCTION or --group GROUP")
    if added["group"] and (len(added["args"]) > 1 or added["kwargs"]):
        raise click.UsageError("a task must have at most one ARG, its data")
    due = {"job": due_job(**added)} if added["function"] else {"task": due_task(**added)}
    made = session.store.schedules.put(name, cron, zone=zone, catch_up=catch_up, reason=reason, **due)
    tell(session, made, f"{name} adds {adds(made)}: {made.in_words or cron}")


def due_job(
    *, function: str, args: Sequence[str], kwargs: Sequence[tuple[str, str]], queue: str, priority: int, **_: Any
) -> DueJob:
    named = {key: value_of(text) for key, text in kwargs}
    return DueJob(function=function, args=list(map(value_of, args)), kwargs=named, queue=queue, priority=priority)


def due_task(*, group: str, args: Sequence[str], labels: Sequence[tuple[str, str]], priority: int, **_: Any) -> DueTask:
    return DueTask(group=group, data="".join(args), labels=dict(labels), priority=priority)


@command("delete", needs=Scope.OPERATE, below=schedule)
@name
def delete(session: Session, /, name: str) -> None:
    """Delete a schedule. Tasks and jobs that it has added are kept."""
    found = session.store.schedules.delete(name)
    if found is None:
        raise no_schedule(session, name)
    tell(session, found, f"deleted the schedule {name}")


@command("pause", needs=Scope.OPERATE, below=schedule)
@name
@parameter_types.reason
def pause(session: Session, /, name: str, reason: str) -> None:
    """Pause a schedule until it is resumed."""
    tell(session, session.store.schedules.pause(name, reason), f"{name} is paused")


@command("resume", needs=Scope.OPERATE, below=schedule)
@name
@parameter_types.reason
def resume(session: Session, /, name: str, reason: str) -> None:
    """Resume a schedule. Runs missed during the pause are skipped."""
    found = session.store.schedules.resume(name, reason)
    tell(session, found, f"{name} is resumed, next {relative(found.next_ms, now_ms()) if found.next_ms else 'never'}")


@command("run", needs=Scope.OPERATE, below=schedule)
@name
@parameter_types.reason
def run(session: Session, /, name: str, reason: str) -> None:
    """Add the scheduled task or job now."""
    task = session.store.schedules.run(name, reason)
    session.tell([as_json(task)])
    session.say(f"added task {task.id} to {task.group}")


def tell(session: Session, found: Schedule, sentence: str) -> None:
    session.tell([as_json(found)])
    session.say(sentence)
