"""Enqueue, list, show, cancel, requeue and delete jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from .. import endpoints
from ..types.job_record import DEFAULT_QUEUE, JobOptions, JobStatus, OnLost
from ..types.jobs import Job
from ..units import counted, duration
from . import made, parameter_types
from .base import Failure, Scope, Session, as_json, command
from .tables import Column, facts, printable_lines, relative, when

MISSING = "job {id} does not exist; it may have been deleted"


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
    "--expires",
    "expires_ms",
    type=parameter_types.duration_ms,
    metavar="TIME",
    help="How long after it is due a job that nobody has begun is cancelled.",
)
@click.option(
    "--on-lost", type=click.Choice([each.value for each in OnLost]), help="What happens to the job if its worker dies."
)
@parameter_types.labels
@parameter_types.unique
@parameter_types.unique_for
@click.option("--wait", is_flag=True, help="Wait until the job has finished. Exit code 1 if it failed.")
def enqueue(
    session: Session,
    /,
    function: str,
    args: Sequence[str],
    kwargs: Sequence[tuple[str, str]],
    labels: Sequence[tuple[str, str]],
    wait: bool,
    **more: Any,
) -> None:
    """Enqueue FUNCTION. ARGs are parsed as JSON, otherwise passed as strings.

    taskstore job enqueue reports.build 2026 --with format=pdf
    """
    options = {name: more.pop(name) for name in ("max_attempts", "timeout_ms", "expires_ms", "on_lost")}
    new = session.store.jobs.enqueue(
        function,
        list(map(value_of, args)),
        {name: value_of(text) for name, text in kwargs},
        options=JobOptions(**options),
        labels=dict(labels),
        **more,
    )
    if wait:
        tell_end(session, session.store.jobs.wait(new.id, raises=False))
        return
    nothing = "nothing was enqueued: " if new.duplicate else ""
    tell(session, new, f"{nothing}job {new.id} is {new.status} in the queue {new.queue}")


def value_of(text: str) -> Any:
    """Parse a text as JSON; return the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def result_of(found: Job) -> str:
    return written(found.result) if found.status == JobStatus.SUCCEEDED else ""


made.lists(
    "list",
    endpoints.JOBS,
    (
        Column[Job]("job", lambda each: each.id, is_number=True, style="cyan"),
        Column[Job]("status", lambda each: each.status, is_kept=True),
        Column[Job]("function", lambda each: each.function, style="bold"),
        Column[Job]("queue", lambda each: each.queue, is_spare=True),
        Column[Job]("due", lambda each: each.status != JobStatus.STARTED and relative(each.available_at_ms)),
        Column[Job]("tries", lambda each: len(each.attempts), is_number=True),
        Column[Job]("worker", lambda each: each.worker, is_long=True, is_spare=True),
        Column[Job]("result", result_of, is_long=True),
        Column[Job]("error", lambda each: each.error and each.error.line, is_long=True, style="red"),
    ),
    items=lambda page: page.jobs,
    nothing="no matching jobs",
    help="List jobs by the time they are due or finished, latest first.",
    below=job,
)


@command("show", needs=Scope.READ, below=job)
@click.argument("id", type=parameter_types.ID)
def show(session: Session, id: int) -> None:
    """Show a job: arguments, attempts, result, traceback, and the end of its output."""
    found = made.one(session, endpoints.JOB, MISSING, id=id)
    if not session.tell([as_json(found)]):
        session.show(whole(found))


def whole(found: Job) -> RenderableType:
    texts = [found.error.traceback or found.error.line if found.error else "", found.log and f"Output:\n{found.log}"]
    return Group(facts(_facts(found)), *(Text(f"\n{printable_lines(text.rstrip())}") for text in texts if text))


def _facts(found: Job) -> Iterator[tuple[str, object]]:
    yield "job", found.id
    yield "status", found.status
    yield "function", found.function
    yield "args", " ".join(map(written, found.args))
    yield "kwargs", " ".join(f"{name}={written(each)}" for name, each in found.kwargs.items())
    yield "queue", found.queue
    yield "priority", found.priority
    yield "labels", " ".join(f"{name}={value}" for name, value in sorted(found.labels.items()))
    yield "created", when(found.created)
    yield "updated", when(found.updated)
    yield "due", when(found.available_at_ms) if found.status == JobStatus.SCHEDULED else ""
    yield "worker", found.worker
    yield "process", f"{found.pid} on {found.host}" if found.pid else ""
    for number, attempt in enumerate(found.attempts, 1):
        took = f" after {duration(attempt.ended - attempt.started)}" if attempt.ended and attempt.started else ""
        yield f"attempt {number}", f"{attempt.how or 'under way'}{took}"
    yield "result", result_of(found)


@command("wait", needs=Scope.READ, below=job)
@click.argument("id", type=parameter_types.ID)
@click.option("--timeout", "timeout_ms", type=parameter_types.duration_ms, metavar="TIME", help="Longest time to wait.")
def wait(session: Session, /, id: int, timeout_ms: int | None) -> None:
    """Wait until a job has finished, and print its result. Exit code 1 if it failed or has not finished."""
    try:
        timeout_s = None if timeout_ms is None else timeout_ms / 1_000
        tell_end(session, session.store.jobs.wait(id, timeout_s, raises=False))
    except TimeoutError as problem:
        raise Failure(str(problem)) from None


def tell_end(session: Session, found: Job) -> None:
    tell(session, found, written(found.result) if found.error is None else "")
    if found.status == JobStatus.FAILED:
        raise Failure(f"job {found.id} failed: {found.error.line if found.error else 'unknown error'}")
    if found.status == JobStatus.CANCELLED:
        raise Failure(f"job {found.id} was cancelled {found.error.message if found.error else ''}".rstrip())


@command("cancel", needs=Scope.WORK, below=job)
@click.argument("ids", nargs=-1, required=True, metavar="ID...", type=parameter_types.ID)
@parameter_types.reason
def cancel(session: Session, /, ids: tuple[int, ...], reason: str) -> None:
    """Cancel jobs that have not ended. The worker of a running one ends it within seconds."""
    for id in ids:
        made.one(session, endpoints.JOB, MISSING, id=id)  # An id of another task is a mistake.
    ended = session.store.cancel(ids, reason)
    if not ended.ids:
        raise Failure(f"nothing was cancelled: {'the job has' if len(ids) == 1 else 'the jobs have'} ended")
    if not session.tell([as_json(ended)]):
        session.say(f"cancelled {counted(len(ended.ids), 'job')}")


@command("requeue", needs=Scope.OPERATE, below=job)
@click.argument("id", type=parameter_types.ID)
@click.argument("args", nargs=-1, metavar="[ARG...]")
@parameter_types.kwargs
@parameter_types.reason
def requeue(session: Session, /, id: int, args: Sequence[str], kwargs: Sequence[tuple[str, str]], reason: str) -> None:
    """Run a finished job again, with new arguments if any are given."""
    new_args = list(map(value_of, args)) or None
    new_kwargs = {name: value_of(text) for name, text in kwargs} or None
    found = session.store.jobs.requeue(id, new_args, new_kwargs, reason)
    tell(session, found, f"job {found.id} is {found.status} again")


made.does(
    "delete",
    endpoints.DELETE_JOB,
    lambda found: f"deleted job {found.id}, which {found.status}",
    missing=MISSING,
    help="Delete a finished job.",
    below=job,
)


def tell(session: Session, found: Job, sentence: str) -> None:
    if not session.tell([as_json(found)]) and sentence:
        session.say(sentence)
