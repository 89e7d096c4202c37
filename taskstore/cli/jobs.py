"""Enqueue, list, show, requeue and delete jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ..types.job_record import DEFAULT_QUEUE, JobOptions, JobStatus, OnLost
from ..types.jobs import Job
from ..units import duration
from . import parameter_types
from .base import Failure, Scope, Session, as_json, command, now_ms
from .tables import Column, facts, printable_lines, relative, table, when

MOST = 200  # In one list.
COLUMNS = (
    Column(title="job", is_number=True, style="cyan"),
    Column(title="status", is_kept=True),
    Column(title="function", style="bold"),
    Column(title="queue", is_spare=True),
    Column(title="due"),
    Column(title="tries", is_number=True),
    Column(title="worker", is_long=True, is_spare=True),
    Column(title="result", is_long=True),
    Column(title="error", is_long=True, style="red"),
)


@click.group("job")
def job() -> None:
    """Enqueue functions for workers to run, and see their results."""


@command("enqueue", needs=Scope.WORK, below=job)
@click.argument("function")
@click.argument("args", nargs=-1, metavar="[ARG...]")
@parameter_types.kwargs
@click.option("--queue", default=DEFAULT_QUEUE, show_default=True, metavar="NAME")
@click.option(
    "--at",
    "at_ms",
    type=parameter_types.timespec_ms,
    default="now",
    metavar="TIME",
    help="Earliest start: 2026-01-31T12:00 (UTC), or +10min.",
)
@parameter_types.priority_of_new
@click.option("--max-attempts", type=parameter_types.Number(min=1), metavar="N", help="Maximum number of attempts.")
@click.option(
    "--timeout", "timeout_ms", type=parameter_types.duration_ms, metavar="TIME", help="Time limit of one attempt."
)
@click.option(
    "--on-lost", type=click.Choice([each.value for each in OnLost]), help="What happens to the job if its worker dies."
)
@parameter_types.unique
@parameter_types.unique_for
@click.option("--wait", is_flag=True, help="Wait until the job has finished. Exit code 1 if it failed.")
def enqueue(
    session: Session, /, function: str, args: Sequence[str], kwargs: Sequence[tuple[str, str]], wait: bool, **more: Any
) -> None:
    """Enqueue FUNCTION. ARGs are parsed as JSON, otherwise passed as strings.

    taskstore job enqueue reports.build 2026 --with format=pdf
    """
    options = {name: more.pop(name) for name in ("max_attempts", "timeout_ms", "on_lost")}
    made = session.store.jobs.enqueue(
        function,
        list(map(value_of, args)),
        {name: value_of(text) for name, text in kwargs},
        options=JobOptions(**{name: value for name, value in options.items() if value is not None}),
        **more,
    )
    if wait:
        tell_end(session, session.store.jobs.wait(made.id))
        return
    nothing = "nothing was enqueued: " if made.duplicate else ""
    tell(session, made, f"{nothing}job {made.id} is {made.status} in the queue {made.queue}")


def value_of(text: str) -> Any:
    """Parse a text as JSON; return the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@command("list", needs=Scope.READ, below=job)
@click.option("--queue", metavar="NAME")
@click.option("--status", type=click.Choice([each.value for each in JobStatus]))
@click.option("--function", metavar="PATH")
@click.option(
    "--limit", type=parameter_types.Number(1, MOST), default=50, show_default=True, metavar="N", help="Show at most N."
)
def list_jobs(session: Session, /, **asked: Any) -> None:
    """List jobs by the time they are due or finished, latest first."""
    found = session.some(session.store.jobs.list(**asked).jobs, "no matching jobs")
    if session.tell(map(as_json, found)):
        return
    now = now_ms()
    rows = (
        [
            str(each.id),
            each.status,
            each.function,
            each.queue,
            "" if each.status == JobStatus.STARTED else relative(each.available_at_ms, now),
            str(len(each.attempts) or ""),
            each.worker,
            json.dumps(each.result, ensure_ascii=False) if each.status == JobStatus.SUCCEEDED else "",
            each.error.line if each.error else "",
        ]
        for each in found
    )
    session.show(table(COLUMNS, rows))


@command("show", needs=Scope.READ, below=job)
@click.argument("id", type=parameter_types.ID)
def show(session: Session, id: int) -> None:
    """Show a job: arguments, attempts, result, traceback, and the end of its output."""
    found = session.store.jobs.get(id)
    if found is None:
        raise no_job(id)
    if session.tell([as_json(found)]):
        return
    session.show(whole(found, now_ms()))


def no_job(id: int) -> Failure:
    return Failure(f"job {id} does not exist; it may have been deleted")


def whole(found: Job, now: int) -> RenderableType:
    texts = [found.error.traceback or found.error.line if found.error else "", found.log and f"Output:\n{found.log}"]
    known = facts((name, what) for name, what in _facts(found, now) if what)
    return Group(known, *(Text(f"\n{printable_lines(text.rstrip())}") for text in texts if text))


def _facts(found: Job, now: int) -> Iterator[tuple[str, str]]:
    yield "job", str(found.id)
    yield "status", found.status
    yield "function", found.function
    yield "args", " ".join(json.dumps(each, ensure_ascii=False) for each in found.args)
    yield "kwargs", " ".join(f"{name}={json.dumps(each, ensure_ascii=False)}" for name, each in found.kwargs.items())
    yield "queue", found.queue
    yield "priority", str(found.priority or "")
    yield "created", when(found.created, now)
    yield "updated", when(found.updated, now)
    yield "due", when(found.available_at_ms, now) if found.status == JobStatus.SCHEDULED else ""
    yield "worker", found.worker
    yield "process", f"{found.pid} on {found.host}" if found.pid else ""
    for number, attempt in enumerate(found.attempts, 1):
        took = f" after {duration(attempt.ended - attempt.started)}" if attempt.ended and attempt.started else ""
        yield f"attempt {number}", f"{attempt.how or 'under way'}{took}"
    yield "result", json.dumps(found.result, ensure_ascii=False) if found.status == JobStatus.SUCCEEDED else ""


@command("wait", needs=Scope.READ, below=job)
@click.argument("id", type=parameter_types.ID)
@click.option("--timeout", "timeout_ms", type=parameter_types.duration_ms, metavar="TIME", help="Longest time to wait.")
def wait(session: Session, /, id: int, timeout_ms: int | None) -> None:
    """Wait until a job has finished, and print its result. Exit code 1 if it failed or has not finished."""
    timeout_s = None if timeout_ms is None else timeout_ms / 1_000
    try:
        tell_end(session, session.store.jobs.wait(id, timeout_s))
    except TimeoutError as problem:
        raise Failure(str(problem)) from None


def tell_end(session: Session, found: Job) -> None:
    tell(session, found, json.dumps(found.result, ensure_ascii=False) if found.error is None else "")
    if found.status == JobStatus.FAILED:
        raise Failure(f"job {found.id} failed: {found.error.line if found.error else 'unknown error'}")


@command("requeue", needs=Scope.OPERATE, below=job)
@click.argument("id", type=parameter_types.ID)
@click.argument("args", nargs=-1, metavar="[ARG...]")
@parameter_types.kwargs
@parameter_types.reason
def requeue(session: Session, /, id: int, args: Sequence[str], kwargs: Sequence[tuple[str, str]], reason: str) -> None:
    """Run a finished job again, with new arguments if any are given."""
    made = session.store.jobs.requeue(
        id,
        list(map(value_of, args)) if args else None,
        {name: value_of(text) for name, text in kwargs} if kwargs else None,
        reason=reason,
    )
    tell(session, made, f"job {made.id} is {made.status} again")


@command("delete", needs=Scope.OPERATE, below=job)
@click.argument("id", type=parameter_types.ID)
def delete(session: Session, id: int) -> None:
    """Delete a finished job."""
    found = session.store.jobs.delete(id)
    if found is None:
        raise no_job(id)
    tell(session, found, f"deleted job {id}, which {found.status}")


def tell(session: Session, found: Job, sentence: str) -> None:
    if not session.tell([as_json(found)]) and sentence:
        session.say(sentence)
