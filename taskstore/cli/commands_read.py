"""Show the progress and the results of shell commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import click
from click.core import ParameterSource
from rich.console import Group

from ..types.command_record import OF_LISTS, Command, CommandStatus, LiveOutput, Run
from ..types.commands import CommandSeen, CommandWhole, ListSeen, ListWhole, ProjectStatus, RunningList
from ..units import duration, size
from . import parameter_types
from .base import Failure, Scope, Session, as_json, command, now_ms
from .commands_files import write_results
from .commands_group import commands, found, paged, project, statuses
from .tables import Column, facts, number, printable_lines, relative, table, when

PROJECTS = (
    Column(title="project", style="bold"),
    *(Column(title=title, is_number=True, is_kept=True) for title in ("new", "open", "running", "completed", "failed")),
)
STATES = (
    Column(title="status", style="bold"),
    Column(title="commands", is_number=True),
    Column(title="lists", is_number=True),
    Column(title="", is_long=True),
)
RUNNING = (
    Column(title="list", style="bold"),
    Column(title="task", is_number=True, style="cyan"),
    Column(title="worker", is_long=True),
    Column(title="done", is_number=True),
    Column(title="of", is_number=True),
    Column(title="since"),
    Column(title="left"),
)
LISTS = (
    Column(title="list", style="bold"),
    Column(title="task", is_number=True, style="cyan"),
    Column(title="status", is_kept=True),
    Column(title="commands", is_number=True),
    Column(title="done", is_number=True),
    Column(title="expected"),
    Column(title="worker", is_long=True, is_spare=True),
    Column(title="left"),
    Column(title="error", is_long=True, style="red"),
)
COMMANDS = (
    Column(title="command", style="cyan"),
    Column(title="status", is_kept=True),
    Column(title="line", is_long=True, style="bold"),
    Column(title="started"),
    Column(title="took"),
    Column(title="exit", is_number=True),
    Column(title="worker", is_long=True, is_spare=True),
    Column(title="output", is_long=True),
    Column(title="error", is_long=True, style="red"),
)
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
    CommandStatus.NEW_STASHED: "stashed",
    CommandStatus.OPEN_STASHED: "stashed",
}  # In the order in which a command passes through them.
OF_ONE = tuple(sorted(set(CommandStatus) - OF_LISTS))


# ---- Projects


@command("projects", needs=Scope.READ, below=commands)
def projects(session: Session, /) -> None:
    """List the projects with commands."""
    seen = session.some(session.store.commands.projects().projects, "no commands")
    if session.tell(map(as_json, seen)):
        return
    session.show(table(PROJECTS, ([each.project, *map(number, _numbers(each.counts))] for each in seen)))


def _numbers(counts: Mapping[str, int]) -> Iterator[int]:
    for status in (CommandStatus.NEW, CommandStatus.OPEN, CommandStatus.RUNNING, CommandStatus.COMPLETED):
        yield counts.get(status, 0)
    yield counts.get(CommandStatus.FAILED_TIME, 0) + counts.get(CommandStatus.FAILED_COUNT, 0)


@command("status", needs=Scope.READ, below=commands)
@project
def status(session: Session, /, project: str) -> None:
    """Show the progress of a project: counts by status, running lists, time left, and run times."""
    seen = session.store.commands.status(project)
    if session.tell([as_json(seen)]):
        return
    if not any(seen.counts.values()):
        raise Failure(f"no commands in the project {project}")
    session.show(table(STATES, _states(seen)))
    session.show(Group("", facts((name, what) for name, what in _summary(seen) if what)))
    if seen.running:
        session.show(Group("", table(RUNNING, (_running(each, now_ms()) for each in seen.running))))


def _states(seen: ProjectStatus) -> Iterator[list[str]]:
    for status, meaning in MEANINGS.items():
        commands, lists = seen.counts.get(status, 0), seen.lists.get(status, 0)
        # Always show the statuses of a successful run, even with no commands.
        if commands or lists or status in tuple(MEANINGS)[:5]:
            yield [status, number(commands), number(lists) if lists else "", meaning]


def _summary(seen: ProjectStatus) -> Iterator[tuple[str, str]]:
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


def _running(seen: RunningList, now: int) -> list[str]:
    return [
        seen.name,
        str(seen.task),
        seen.worker or f"client {seen.owner}",
        str(seen.done),
        str(seen.commands),
        relative(seen.started_ms, now),
        duration(max(0, seen.left_ms)),
    ]


# ---- Lists


@command("lists", needs=Scope.READ, below=commands)
@project
@statuses(sorted(OF_LISTS))
@parameter_types.limit
def lists(session: Session, /, project: str, status: str | None, limit: int) -> None:
    """List the open, running and closed lists: running ones first, then newest first."""

    def page_of(after: str | None, size: int) -> tuple[Sequence[ListSeen], str | None]:
        page = session.store.commands.lists(project, CommandStatus(status) if status else None, after, size)
        return page.lists, page.after

    seen = session.some(list(paged(page_of, limit)), f"no matching lists in the project {project}")
    if session.tell(map(as_json, seen)):
        return
    session.show(table(LISTS, map(_list_cells, seen)))


def _list_cells(seen: ListSeen) -> list[str]:
    return [
        seen.name,
        str(seen.task),
        seen.status,
        str(seen.commands),
        str(seen.done) if seen.done else "",
        duration(seen.expected_duration * 1_000),
        seen.worker,
        duration(max(0, seen.left_ms)) if seen.status == CommandStatus.RUNNING else "",
        seen.error,
    ]


@command("list", needs=Scope.READ, below=commands)
@click.argument("task", type=parameter_types.ID)
@project
def show_list(session: Session, /, task: int, project: str) -> None:
    """Show a list and its commands, by its task id."""
    whole = session.store.commands.list(project, task)
    if whole is None:
        raise Failure(f"no list {task} in the project {project}; it may have finished")
    if session.tell([as_json(whole)]):
        return
    session.show(facts((name, what) for name, what in _list_facts(whole, now_ms()) if what))
    live = {each.command: each for each in whole.live}
    rows = (_cells(each, _state(whole, each, live), now_ms(), live.get(each.id)) for each in whole.commands)
    session.show(Group("", table(COMMANDS, rows)))


def _list_facts(whole: ListWhole, now: int) -> Iterator[tuple[str, str]]:
    seen = whole.list
    yield "list", seen.name
    yield "project", whole.project
    yield "task", str(seen.task)
    yield "status", seen.status
    yield "since", when(seen.at_ms, now)
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


@command("results", needs=Scope.READ, below=commands)
@click.argument("id", required=False)
@project
@statuses(OF_ONE)
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
    def page_of(after: str | None, size: int) -> tuple[Sequence[CommandSeen], str | None]:
        page = session.store.commands.results(project, after=after, limit=size, **which)
        return page.commands, page.after

    yield from paged(page_of, limit)


def show_results(session: Session, project: str, seen: Sequence[CommandSeen]) -> None:
    session.some(seen, f"no matching commands in the project {project}")
    if session.tell(map(as_json, seen)):
        return
    session.show(table(COMMANDS, (_cells(each, each.status, now_ms()) for each in seen)))


def _cells(seen: CommandSeen | Command, state: str, now: int, live: LiveOutput | None = None) -> list[str]:
    run = seen.run or Run(worker="")
    return [
        seen.id,
        state,
        seen.cmd,
        relative(run.started * 1_000, now) if run.started else "",
        duration(run.duration_ms) if seen.run else "",
        "" if run.exit_code is None else str(run.exit_code),
        run.worker,
        f"{size(run.missing)} cut" if run.missing and not live else "".join((live or run).out.lines[-1:]),
        "".join(live.err.lines[-1:]) if live else run.complaint,
    ]


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
