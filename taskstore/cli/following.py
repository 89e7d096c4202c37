"""The command `watch`: live counts of groups, or with an id the progress of a task, a job or a command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice, starmap
from typing import Any

import click
import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from ..errors import StoreUnavailable
from ..types.command_record import CommandStatus
from ..types.groups import Stats
from ..types.job_record import JobStatus, queue_of
from ..types.progress import Progress
from ..types.scalars import whole
from ..types.tasks import FAILED_FROM, Ending, Task
from . import parameter_types
from .base import Failure, Scope, Session, as_json, command, now_ms
from .commands_change import found
from .read import stats_table
from .tables import exact, printable

SUCCEEDED = frozenset({CommandStatus.COMPLETED, CommandStatus.COMPLETED_ARCHIVE})
FAILED = frozenset({CommandStatus.FAILED_TIME, CommandStatus.FAILED_COUNT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The state of a task at a moment. `end`: a sentence about its end, empty before it."""

    state: str
    progress: Progress | None = None
    end: str = ""
    has_failed: bool = False

    @property
    def line(self) -> str:
        if self.progress is None:
            return self.state
        return f"{self.progress.percent} % {printable(self.progress.text)}".rstrip()


def follow(session: Session, id: str, project: str | None, every_s: float) -> None:
    """Show the progress of a task or job, or of a command of this project, until it ends.

    Raises Failure if it has failed, or does not exist.
    """
    if project is not None:
        name, look = f"command {id}", lambda: _command(session, project, id)
    else:
        name, look = _job_or_task(session, int(id))
    last = Look(state="")
    with _display(session, name) as show:
        for seen in _looks(session, look, every_s):
            if seen != last:
                show(seen)
                last = seen
    if last.has_failed:
        raise Failure(last.end)
    session.say(last.end)


def _looks(session: Session, look: Callable[[], Look], every_s: float) -> Iterator[Look]:
    """Yield what is seen until the end, also through an outage of the server after the first look."""
    seen, is_away = look(), False
    while True:
        yield seen
        if seen.end:
            return
        time.sleep(every_s)
        try:
            seen, is_away = look(), False
        except StoreUnavailable as away:
            if not is_away:
                session.note(str(away))
            is_away = True


def _display(session: Session, name: str) -> AbstractContextManager[Callable[[Look], object]]:
    """Return what shows each change: a bar on a terminal, otherwise a line."""
    if session.is_json:
        return nullcontext(lambda seen: session.tell([_as_json(seen)]))
    if session.out.is_terminal:
        return _BarOf(session, name)
    return nullcontext(lambda seen: None if seen.end else session.say(f"{name}: {seen.line}"))


def _as_json(seen: Look) -> dict[str, Any]:
    progress = msgspec.to_builtins(seen.progress)
    return {"state": seen.state, "progress": progress, **({"end": seen.end} if seen.end else {})}


class _BarOf:
    """A bar on the terminal; before the first report it only moves."""

    def __init__(self, session: Session, name: str) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(markup=False),
            TextColumn("{task.fields[text]}", markup=False),
        )
        self._bar = Bar(*columns, console=session.out)
        self._row = self._bar.add_task(name, total=None, text="")

    def __enter__(self) -> Callable[[Look], None]:
        self._bar.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _show(self, seen: Look) -> None:
        if seen.end:
            # A bar that goes on moving would look as if the work did.
            if not seen.has_failed:
                self._bar.update(self._row, total=1.0, completed=1.0)
            self._bar.update(self._row, text=seen.state)
            self._bar.stop_task(self._row)
        elif seen.progress is None:
            self._bar.update(self._row, text=seen.state)
        else:
            self._bar.update(self._row, total=1.0, completed=seen.progress.done, text=printable(seen.progress.text))


# ---- What is watched


def _job_or_task(session: Session, id: int) -> tuple[str, Callable[[], Look]]:
    history = session.store.history(id)
    if history is None:
        raise Failure(f"task {id} does not exist")
    origin = history.origin
    if queue_of(history.steps[-1].group) is not None:
        return f"job {origin}", lambda: _job(session, origin)
    followed = _Followed(session, origin, history.steps[-1].id)
    return f"task {id}", followed.look


def _job(session: Session, id: int) -> Look:
    job = session.store.jobs.get(id)
    if job is None:
        return Look(state="deleted", end=f"job {id} was deleted", has_failed=True)
    if job.status == JobStatus.FAILED:
        why = job.error.line if job.error else "unknown error"
        return Look(state=job.status, end=f"job {id} failed: {why}", has_failed=True)
    if job.status == JobStatus.CANCELLED:
        why = job.error.message if job.error else ""
        return Look(state=job.status, end=f"job {id} was cancelled {why}".rstrip(), has_failed=True)
    end = f"job {id} succeeded" if job.is_finished else ""
    return Look(state=job.status, progress=job.progress, end=end)


def _command(session: Session, project: str, id: str) -> Look:
    seen = found(session, project, id).newest
    if seen.status in FAILED:
        why = f": {seen.run.complaint}" if seen.run and seen.run.complaint else ""
        return Look(state=seen.status, end=f"command {id} failed{why}", has_failed=True)
    if seen.status == CommandStatus.CANCELLED:
        return Look(state=seen.status, end=f"command {id} was cancelled", has_failed=True)
    end = f"command {id} succeeded" if seen.status in SUCCEEDED else ""
    return Look(state=seen.status, progress=seen.progress, end=end)


class _Followed:
    """A task, whose id changes with each claim and renewal."""

    def __init__(self, session: Session, origin: int, newest: int) -> None:
        self._session, self._origin, self._newest = session, origin, newest

    def look(self) -> Look:
        if task := self._session.store.task(self._newest):
            return self._living(task)
        history = self._session.store.history(self._origin)
        if history is None:
            return self._ended("has ended; the server keeps no history that says how", has_failed=True)
        last = history.steps[-1]
        if last.ended is None:
            task = self._session.store.task(last.id)
            self._newest = last.id
            # It may have been replaced in the meantime: the next look finds out.
            return self._living(task) if task else Look(state="changing")
        if last.ended.how == Ending.DELETED and not last.ended.operator:
            return self._ended("is done", has_failed=False)
        by = f" by {last.ended.operator}" if last.ended.operator else ""
        return self._ended(f"was {last.ended.how}{by}", has_failed=True)

    def _living(self, task: Task) -> Look:
        if FAILED_FROM in task.labels:
            return self._ended(f"failed and is in the group {task.group}: {task.error}", has_failed=True)
        if task.available_at_ms <= now_ms():
            state = "ready"
        else:
            state = "claimed" if task.claims and task.owner else "scheduled"
        return Look(state="claimed" if task.progress else state, progress=task.progress)

    def _ended(self, what: str, *, has_failed: bool) -> Look:
        return Look(state="failed" if has_failed else "done", end=f"task {self._origin} {what}", has_failed=has_failed)


@command("watch", needs=Scope.READ)
@click.argument("what", nargs=-1, metavar="[GROUP...|ID]", shell_complete=parameter_types.group_names)
@click.option("--project", metavar="NAME", help="Watch the command ID of this project.")
@click.option("--every", "every_ms", type=parameter_types.duration_ms, default="1s", metavar="TIME", show_default=True)
@click.option(
    "--times", type=parameter_types.SIZE, default=0, metavar="N", help="Stop after N updates [default: never]."
)
def watch(session: Session, what: Sequence[str], project: str | None, every_ms: int, times: int) -> None:
    """Show live counts of each group until Ctrl-C, or the progress of a task, job or command until it ends.

    A single number is the ID of a task or job. Exit code 1 if it failed. With --json, one line per update.
    """
    if project is not None or (len(what) == 1 and whole(what[0], 1)):
        if len(what) != 1 or times:
            raise click.UsageError("give one ID, without --times, to watch a task, job or command")
        follow(session, what[0], project, every_ms / 1_000)
        return
    looks = islice(look(session, what, every_ms / 1_000), times or None)
    with suppress(KeyboardInterrupt):  # The normal end.
        if not session.tell(map(record, looks)):
            show(session, starmap(picture, looks))


def show(session: Session, pictures: Iterable[RenderableType]) -> None:
    """Print each picture, on a terminal in place of the previous one."""
    if not session.out.is_terminal:
        for each in pictures:
            session.show(each)
        return
    with Live(console=session.out, auto_refresh=False) as live:
        for each in pictures:
            live.update(each, refresh=True)


def record(look: tuple[Stats, str]) -> dict[str, Any]:
    stats, _ = look
    return {"at": stats.at_ms, "groups": [*map(as_json, stats.groups)]}


def look(session: Session, groups: Sequence[str], every_s: float) -> Iterator[tuple[Stats, str]]:
    """Yield the latest counts, and the error if they could not be updated."""
    found, trouble = session.store.stats(tuple(groups)), ""
    while True:
        yield found, trouble
        time.sleep(every_s)
        try:
            found, trouble = session.store.stats(tuple(groups)), ""
        except StoreUnavailable as away:
            trouble = str(away)


def picture(found: Stats, trouble: str) -> RenderableType:
    lines: list[RenderableType] = [stats_table(found.groups)]
    if trouble:
        lines.append(Text(f"{trouble}; the numbers shown are older", style="red"))
    return Group(*lines, Text(f"as of {exact(found.at_ms)}; Ctrl-C to stop", style="dim"))
