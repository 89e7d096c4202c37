"""Commands about schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from .. import endpoints
from ..types.job_record import DEFAULT_QUEUE
from ..types.schedules import DueJob, DueTask, Overlap, Schedule
from ..units import duration
from . import made, parameter_types
from .base import Scope, Session, as_json, command
from .jobs import value_of
from .tables import Column, relative, when

MISSING = "schedule {name} does not exist: `schedule list` lists schedules"


@click.group("schedule")
def schedule() -> None:
    """Add tasks and jobs on a schedule."""


def adds(found: Schedule) -> str:
    """Describe what a schedule adds."""
    if found.job:
        return f"job {found.job.function}"
    return f"task in {found.task.group}" if found.task else ""


made.lists(
    "list",
    endpoints.SCHEDULES,
    (
        Column[Schedule]("schedule", lambda each: each.name, style="bold"),
        Column[Schedule]("when", lambda each: each.in_words or each.cron, is_long=True),
        Column[Schedule]("zone", lambda each: each.zone),
        Column[Schedule]("adds", adds, is_long=True),
        Column[Schedule]("last", lambda each: each.last and relative(each.last.at_ms)),
        Column[Schedule]("next", lambda each: each.next_ms and relative(each.next_ms)),
        Column[Schedule]("", lambda each: each.error or ("paused" if each.paused else ""), is_long=True, style="red"),
    ),
    nothing="no schedules",
    help="List the schedules with their last and next runs.",
    below=schedule,
)


def _facts(found: Schedule) -> Iterator[tuple[str, object]]:
    yield "schedule", found.name
    yield "when", f"{found.cron} ({found.in_words})" if found.in_words not in ("", found.cron) else found.cron
    yield "zone", found.zone
    yield "adds", adds(found)
    yield "missed times", found.catch_up
    if added := found.job or found.task:
        yield "overlap", added.overlap
        yield "expires", f"{duration(added.expires_ms)} after it is due" if added.expires_ms else ""
        yield "unique key", added.unique
    yield "last", f"{when(found.last.at_ms)}: task {found.last.origin}" if found.last else ""
    yield "next", when(found.next_ms) if found.next_ms else ""
    yield "paused", f"by {found.paused.by}, {when(found.paused.at_ms)}" if found.paused else ""
    yield "broken", found.error


made.shows("show", endpoints.SCHEDULE, _facts, missing=MISSING, help="Show a schedule.", below=schedule)


@command("put", needs=Scope.OPERATE, below=schedule)
@click.argument("name")
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
@click.option(
    "--overlap",
    type=click.Choice([each.value for each in Overlap]),
    help="What to do at a due time before the last one has ended. Default: skip for jobs, allow for tasks.",
)
@click.option(
    "--expires",
    "expires_ms",
    type=parameter_types.duration_ms,
    metavar="TIME",
    help="How long after the due time one that waits is cancelled, such as 10min.",
)
@click.option("--unique", default="", metavar="KEY", help="Add nothing while this unique key is taken.")
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
    new = session.store.schedules.put(name, cron, zone=zone, catch_up=catch_up, reason=reason, **due)
    if not session.tell([as_json(new)]):
        session.say(f"{name} adds {adds(new)}: {new.in_words or cron}")


def due_job(
    *,
    function: str,
    args: Sequence[str],
    kwargs: Sequence[tuple[str, str]],
    queue: str,
    labels: Sequence[tuple[str, str]],
    priority: int,
    **more: Any,
) -> DueJob:
    named = {key: value_of(text) for key, text in kwargs}
    values = list(map(value_of, args))
    own: Any = {"priority": priority, "labels": dict(labels), **runs(**more)}
    return DueJob(function=function, args=values, kwargs=named, queue=queue, **own)


def due_task(
    *, group: str, args: Sequence[str], labels: Sequence[tuple[str, str]], priority: int, **more: Any
) -> DueTask:
    return DueTask(group=group, data="".join(args), labels=dict(labels), priority=priority, **runs(**more))


def runs(*, overlap: str | None, expires_ms: int | None, unique: str, **_: Any) -> dict[str, Any]:
    return {"overlap": Overlap(overlap) if overlap else None, "expires_ms": expires_ms, "unique": unique}


made.does(
    "delete",
    endpoints.DELETE_SCHEDULE,
    lambda found: f"deleted the schedule {found.name}",
    missing=MISSING,
    help="Delete a schedule. Tasks and jobs that it has added are kept.",
    below=schedule,
)
made.does(
    "pause",
    endpoints.PAUSE_SCHEDULE,
    lambda found: f"{found.name} is paused",
    missing=MISSING,
    help="Pause a schedule until it is resumed.",
    below=schedule,
)
made.does(
    "resume",
    endpoints.RESUME_SCHEDULE,
    lambda found: f"{found.name} is resumed, next {relative(found.next_ms) if found.next_ms else 'never'}",
    missing=MISSING,
    help="Resume a schedule. Runs missed during the pause are skipped.",
    below=schedule,
)
made.does(
    "run",
    endpoints.RUN_SCHEDULE,
    lambda task: f"added task {task.id} to {task.group}",
    missing=MISSING,
    help="Add the scheduled task or job now.",
    below=schedule,
)
