"""Show the progress and the results of shell commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click
from click.core import ParameterSource
from rich.console import Group

from .. import endpoints
from ..types.command_record import OF_LISTS, Command, CommandStatus, LiveOutput, Run
from ..types.commands import CommandSeen, CommandWhole, ListSeen, ListWhole, ProjectCounts, ProjectStatus, RunningList
from ..units import duration, size
from . import made, parameter_types
from .base import Failure, Scope, Session, as_json, command
from .commands_change import commands as commands
from .commands_change import found, write_results
from .tables import Column, facts, number, printable_lines, relative, table, when

MEANINGS: Mapping[CommandStatus, str] = {
    CommandStatus.NEW: "waiting for a list",
    CommandStatus.OPEN: "waiting for a worker",
    CommandStatus.RUNNING: "running on a worker",
    CommandStatus.CLOSED: "finished by a worker",
    CommandStatus.COMPLETED: "succeeded",
    CommandStatus.COMPLETED_ARCHIVE: "succeeded and archived",
    CommandStatus.FAILED_ARCHIVE: "failed, and replaced by a retry",
    CommandStatus.FAILED_TIME: "expired before a start or a retry",
    CommandStatus.FAILED_COUNT: "failed too often",
    CommandStatus.CANCELLED: "cancelled",
    CommandStatus.NEW_STASHED: "stashed",
    CommandStatus.OPEN_STASHED: "stashed",
}  # In the order in which a command passes through them.


# ---- Projects


def _many(status: str, *others: str) -> Any:
    return lambda seen: number(sum(seen.counts.get(each, 0) for each in (status, *others)))


made.lists(
    "projects",
    endpoints.COMMAND_PROJECTS,
    (
        Column[ProjectCounts]("project", lambda seen: seen.project, style="bold"),
        *(
            Column[ProjectCounts](title, _many(*statuses), is_number=True, is_kept=True)
            for title, statuses in {
                **{each: (each,) for each in ("new", "open", "running", "completed")},
                "failed": ("failed_time", "failed_count"),
            }.items()
        ),
    ),
    items=lambda answer: answer.projects,
    nothing="no commands",
    help="List the projects with commands.",
    below=commands,
)


@command("status", needs=Scope.READ, below=commands)
@made.project
def status(session: Session, /, project: str) -> None:
    """Show the progress of a project: counts by status, running lists, time left, and run times."""
    seen = session.store.commands.status(project)
    if session.tell([as_json(seen)]):
        return
    if not any(seen.counts.values()):
        raise Failure(f"no commands in the project {project}")
    columns = (
        Column[CommandStatus]("status", lambda each: each, style="bold"),
        Column[CommandStatus]("commands", lambda each: number(seen.counts.get(each, 0)), is_number=True),
        Column[CommandStatus]("lists", lambda each: seen.lists.get(each) and number(seen.lists[each]), is_number=True),
        Column[CommandStatus]("", MEANINGS.__getitem__, is_long=True),
    )
    # Always show the statuses of a successful run, even with no commands.
    always = tuple(MEANINGS)[:5]
    session.show(
        table(columns, [each for each in MEANINGS if each in always or seen.counts.get(each) or seen.lists.get(each)])
    )
    session.show(Group("", facts(_summary(seen))))
    if seen.running:
        session.show(Group("", table(RUNNING, seen.running)))


RUNNING = (
    Column[RunningList]("list", lambda seen: seen.name, style="bold"),
    Column[RunningList]("task", lambda seen: seen.task, is_number=True, style="cyan"),
    Column[RunningList]("worker", lambda seen: seen.worker or f"client {seen.owner}", is_long=True),
    Column[RunningList]("done", lambda seen: seen.done, is_number=True, is_kept=True),
    Column[RunningList]("of", lambda seen: seen.commands, is_number=True),
    Column[RunningList]("since", lambda seen: relative(seen.started_ms)),
    Column[RunningList]("left", lambda seen: duration(max(0, seen.left_ms))),
)


def _summary(seen: ProjectStatus) -> Iterator[tuple[str, object]]:
    if seen.forecast_s is None:
        yield "time left", "unknown, no active worker"
    elif seen.forecast_s:
        yield "time left", f"about {duration(round(seen.forecast_s * 1_000))}"
    took = seen.durations
    if took.count:
        yield "recent runs", f"{number(took.count)}, of which {number(seen.fails)} failed"
        yield "outputs cut", f"{number(seen.cut)} of them; raise --output-limit of the workers" if seen.cut else ""
        yield (
            "run time",
            (
                f"{duration(round(took.mean_ms))} mean, {duration(took.p50_ms)} median, "
                f"{duration(took.p95_ms)} at the 95th percentile, {duration(took.max_ms)} longest"
            ),
        )


# ---- Lists

made.lists(
    "lists",
    endpoints.COMMAND_LISTS,
    (
        Column[ListSeen]("list", lambda seen: seen.name, style="bold"),
        Column[ListSeen]("task", lambda seen: seen.task, is_number=True, style="cyan"),
        Column[ListSeen]("status", lambda seen: seen.status, is_kept=True),
        Column[ListSeen]("commands", lambda seen: str(seen.commands), is_number=True),
        Column[ListSeen]("done", lambda seen: seen.done, is_number=True),
        Column[ListSeen]("expected", lambda seen: duration(seen.expected_duration * 1_000)),
        Column[ListSeen]("worker", lambda seen: seen.worker, is_long=True, is_spare=True),
        Column[ListSeen]("left", lambda seen: seen.status == CommandStatus.RUNNING and duration(max(0, seen.left_ms))),
        Column[ListSeen]("error", lambda seen: seen.error, is_long=True, style="red"),
    ),
    items=lambda page: page.lists,
    nothing="no matching lists in the project {project}",
    help="List the open, running and closed lists: running ones first, then newest first.",
    below=commands,
)


@command("list", needs=Scope.READ, below=commands)
@click.argument("task", type=parameter_types.ID)
@made.project
def show_list(session: Session, /, task: int, project: str) -> None:
    """Show a list and its commands, by its task id."""
    missing = "no list {task} in the project {project}; it may have finished"
    whole = made.one(session, endpoints.COMMAND_LIST, missing, project=project, task=task)
    if session.tell([as_json(whole)]):
        return
    session.show(facts(_list_facts(whole)))
    live = {each.command: each for each in whole.live}
    rows = [Shown(each, _state(whole, each, live), live.get(each.id)) for each in whole.commands]
    session.show(Group("", table(COMMANDS, rows)))


def _list_facts(whole: ListWhole) -> Iterator[tuple[str, object]]:
    seen = whole.list
    yield "list", seen.name
    yield "project", whole.project
    yield "task", seen.task
    yield "status", seen.status
    yield "since", when(seen.at_ms)
    yield "expected", duration(seen.expected_duration * 1_000)
    yield "worker", seen.worker
    yield "left", duration(seen.left_ms) if seen.left_ms > 0 else ""
    yield "done", f"{seen.done} of {seen.commands}" if seen.status != CommandStatus.OPEN else ""
    yield "error", seen.error


def _state(whole: ListWhole, command: Command, live: Mapping[str, LiveOutput]) -> str:
    if command.run:
        return "failed" if command.run.failed else "succeeded"
    if command.id in live:
        return CommandStatus.RUNNING
    return "not run" if whole.list.status == CommandStatus.CLOSED else "waiting"


# ---- Results


@dataclass(frozen=True, slots=True)
class Shown:
    """A command in a table, with its state and its output so far."""

    command: CommandSeen | Command
    state: str
    live: LiveOutput | None = None

    @property
    def run(self) -> Run:
        return self.command.run or Run(worker="")

    @property
    def last_line(self) -> str:
        if self.run.missing and not self.live:
            return f"{size(self.run.missing)} cut"
        return "".join((self.live or self.run).out.lines[-1:])


COMMANDS = (
    Column[Shown]("command", lambda seen: seen.command.id, style="cyan"),
    Column[Shown]("status", lambda seen: seen.state, is_kept=True),
    Column[Shown]("line", lambda seen: seen.command.cmd, is_long=True, style="bold"),
    Column[Shown]("started", lambda seen: seen.run.started and relative(seen.run.started * 1_000)),
    Column[Shown]("took", lambda seen: seen.command.run and duration(seen.run.duration_ms)),
    Column[Shown]("exit", lambda seen: "" if seen.run.exit_code is None else str(seen.run.exit_code), is_number=True),
    Column[Shown]("worker", lambda seen: seen.run.worker, is_long=True, is_spare=True),
    Column[Shown]("output", lambda seen: seen.last_line, is_long=True),
    Column[Shown](
        "error",
        lambda seen: "".join(seen.live.err.lines[-1:]) if seen.live else seen.run.complaint,
        is_long=True,
        style="red",
    ),
)


@command("results", needs=Scope.READ, below=commands)
@click.argument("id", required=False)
@made.project
@click.option("--status", type=click.Choice([each.value for each in sorted(set(CommandStatus) - OF_LISTS)]))
@click.option(
    "--text", default="", metavar="TEXT", help="Text to find in the id, the command line, the worker or the output."
)
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write the commands to this directory instead: ID.task, ID.out, ID.err.")  # fmt: skip
@parameter_types.limit
def results(session: Session, /, id: str | None, project: str, to: Path | None, limit: int, **which: Any) -> None:
    """List finished commands, newest first; with an ID, print the output of that command."""
    if id is not None and any(which.values()):
        raise click.UsageError("give either an ID, or --status and --text")
    if to is not None:
        # The default limit suits a terminal; files are wanted for all results.
        is_default = click.get_current_context().get_parameter_source("limit") is ParameterSource.DEFAULT
        many = results_of(session, project, 0 if is_default else limit, **which)
        write_results(session, many if id is None else [last_run(found(session, project, id))], to)
    elif id is not None:
        show(session, found(session, project, id))
    else:
        show_results(session, project, list(results_of(session, project, limit, **which)))


def results_of(session: Session, project: str, limit: int, **which: Any) -> Iterator[CommandSeen]:
    asked = {"project": project, "limit": limit, **which}
    return made.all_of(session, endpoints.COMMAND_RESULTS, lambda page: page.commands, **asked)


def show_results(session: Session, project: str, seen: Sequence[CommandSeen]) -> None:
    session.some(seen, f"no matching commands in the project {project}")
    if not session.tell(map(as_json, seen)):
        session.show(table(COMMANDS, [Shown(each, each.status) for each in seen]))


def last_run(whole: CommandWhole) -> CommandSeen:
    for each in (whole.newest, *whole.earlier):
        if each.run:
            return each
    raise Failure(f"command {whole.newest.id} is {whole.newest.status} and has not been run")


def show(session: Session, whole: CommandWhole) -> None:
    """Print the outputs of a command; with --json, the whole record."""
    if session.tell([as_json(whole)]):
        return
    ran = whole.newest if whole.tail else last_run(whole)
    written = whole.tail or ran.run or Run(worker="")
    for output, pieces in ((sys.stdout, written.out), (sys.stderr, written.err)):
        write(output, pieces.content)
    if whole.tail:
        session.note(f"command {whole.newest.id} is still running")
    elif ran is not whole.newest:
        session.note(f"shows the run {ran.id}; {whole.newest.id} is {whole.newest.status}")
    if missing := written.out.missing + written.err.missing:
        session.note(f"{size(missing)} of the output were not kept; raise --output-limit of the worker")


def write(output: TextIO, content: bytes) -> None:
    """Write bytes unchanged, or, to a terminal, as text with control characters escaped."""
    if output.isatty():
        output.write(printable_lines(content.decode(errors="replace")))
    else:
        output.flush()
        output.buffer.write(content)
    output.flush()
