"""`taskstore commands`: submit command lines, change commands, and exchange them with files in the layout of TDF2."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import click
from msgspec import structs
from msgspec.json import Decoder

from ..client.calls import encoded
from ..client.verbs import add_on_the_wire
from ..commands.files import NotFiles, read_project, write_entries, write_result
from ..endpoints import COMMAND, COMMAND_LISTS
from ..errors import InvalidInput
from ..types.command_record import (
    FINAL,
    OF_LISTS,
    PREFIX,
    RESULTS,
    Command,
    CommandList,
    CommandStatus,
    Entry,
    NotACommand,
    new_command_task,
    new_list_task,
    place_of,
)
from ..types.commands import ChangedCommands, CommandSeen, CommandWhole, Submission
from ..types.scalars import MOST_UNIQUE_FOR_MS
from ..types.tasks import NewTask, Task, holds_results
from ..units import counted
from . import parameter_types
from .base import Failure, Scope, Session, as_json, command, now_ms, telling
from .files import MOST_LINES, counts, import_piece, pieces, without_mark
from .made import all_of, one, project
from .tables import number

MOST_PROBLEMS = 100  # Thousands would push the first ones off the screen.
IN_NO_FILE_NAME = re.compile(r"[^\w.@+-]")
LONGEST_WORKER = 60  # Characters of a name that becomes part of a directory name.
TASK = Decoder(Task)


@click.group("commands")
def commands() -> None:
    """Run shell commands on a pool of machines, and see their results."""


directory = click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")


def found(session: Session, project: str, id: str) -> CommandWhole:
    """Return the command with this id. Raises Failure if it does not exist."""
    missing = "command {id} does not exist in the project {project}"
    return one(session, COMMAND, missing, project=project, id=id)


@command("import", needs=Scope.COMMANDS, below=commands)
@directory
@project
def import_(session: Session, /, directory: Path, project: str) -> None:
    """Import TDF2's directories from DIR: new/ID.task, open/LIST/ID.task, completed/ID.out and so on.

    All files are read first: if any is invalid, nothing is added. Lists that were running become open. Existing
    commands stay unchanged, so an interrupted import can be repeated.
    """
    with reporting(session, "nothing was imported"):
        content = list(read_project(directory).entries)
    there = {command.id for _, record in _entries(session, project) for command in _commands(record)}
    new = [left for entry in content if (left := _without(entry, there))]
    lines = (encoded(add_on_the_wire(_task_of(project, *entry))) + b"\n" for entry in new)
    imported, skipped = 0, len(content) - len(new)
    for first, piece in pieces(lines):
        note = "earlier parts stay imported; run the same command again to continue"
        with telling(session, imported, note):
            names = [_name_of(entry) for entry in new[first - 1 : first - 1 + len(piece)]]
            part = import_piece(session, piece, "", names)
        imported, skipped = imported + part.imported, skipped + part.skipped
    session.tell([{"imported": imported, "skipped": skipped}])
    told = f"; already there: {number(skipped)}" if skipped else ""
    session.say(f"imported {number(imported)} {'command or list' if imported == 1 else 'commands and lists'}{told}")


def _commands(record: Command | CommandList) -> Sequence[Command]:
    return record.commands if isinstance(record, CommandList) else [record]


def _name_of(entry: Entry) -> str:
    status, record = entry
    return f"{status}/{record.directory if isinstance(record, CommandList) else record.id}"


def _without(entry: Entry, there: Set[str]) -> Entry | None:
    """Return what is left of a command or a list without these ids."""
    status, record = entry
    left = tuple(command for command in _commands(record) if command.id not in there)
    if isinstance(record, CommandList):
        record = structs.replace(record, commands=left)
    return (status, record) if left else None


def _task_of(project: str, status: CommandStatus, record: Command | CommandList) -> NewTask:
    """Return the task to import. The key of one that has not ended is the first id, whatever becomes of it."""
    if isinstance(record, CommandList):
        task = new_list_task(project, record, status)
    else:
        task = new_command_task(project, record, status)
    if holds_results(task.group):
        return task
    return replace(task, unique=_commands(record)[0].id, unique_for_ms=MOST_UNIQUE_FOR_MS)


@command("export", needs=Scope.READ, below=commands)
@directory
@project
def export(session: Session, /, directory: Path, project: str) -> None:
    """Write all commands and lists of a project into DIR, in the layout of TDF2's directories.

    DIR must be new or empty. It appears only when it is complete. What changes in the meantime may be missing: stop
    the workers for an exact copy.
    """
    with reporting(session, "nothing was written"):
        written = write_entries(_entries(session, project), directory)
    session.tell([{"commands": written}])
    session.say(f"{directory}: {commands_of(written)}")


def _entries(session: Session, project: str) -> Iterator[Entry]:
    """Yield all commands and lists, each with its status."""
    lists = all_of(session, COMMAND_LISTS, lambda page: page.lists, project=project, status=CommandStatus.RUNNING)
    running = {each.origin: each for each in lists}
    pattern = json.dumps(f"{PREFIX}{project}/*", ensure_ascii=False)
    for line in _lines(session.store.export_tasks(f"group:{pattern}")):
        task = TASK.decode(line)
        _, status = place_of(task.group) or ("", "")
        if status == CommandStatus.OPEN and task.origin in running:  # It may have been closed since.
            status = CommandStatus.RUNNING
        try:
            if status in OF_LISTS:
                made = CommandList.decode(task.data)
                if status is CommandStatus.RUNNING:
                    seen = running[task.origin]
                    made = CommandList(
                        name=made.name,
                        commands=made.commands,
                        started=seen.at_ms // 1_000,
                        worker=IN_NO_FILE_NAME.sub("-", seen.worker or f"client_{task.owner}")[:LONGEST_WORKER],
                    )
                elif status != CommandStatus.CLOSED:
                    made = CommandList(name=made.name, commands=made.commands)
                yield CommandStatus(status), made
            elif status in [*CommandStatus]:
                yield CommandStatus(status), Command.decode(task.data)
        except NotACommand as problem:
            session.note(f"task {task.id} of the group {task.group} is left out: {problem}")


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file that comes in any pieces."""
    rest: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        rest.append(first)
        for other in others:
            yield b"".join(rest)
            rest = [other]
    if any(rest):
        raise Failure("the export broke off")


def write_results(session: Session, seen: Iterable[CommandSeen], directory: Path) -> None:
    """Write ID.task, ID.out and ID.err of each command to a directory, and report those that can't be written."""
    written = left_out = 0
    with reporting(session, "some commands were not written"):
        directory.mkdir(parents=True, exist_ok=True)
        for each in whole(session, seen):
            try:
                write_result(each, directory)
                written += 1
            except NotFiles as wrong:
                left_out += 1
                session.note(str(wrong))
    session.tell([{"commands": written}])
    session.say(f"{directory}: {commands_of(written)}")
    if left_out:
        raise Failure(f"{commands_of(left_out)} can't be written as files")


def commands_of(count: int) -> str:
    return f"{number(count)} command{'' if count == 1 else 's'}"


def whole(session: Session, seen: Iterable[CommandSeen]) -> Iterator[Command]:
    """Yield the commands with their whole outputs, which a page of results does not include."""
    for each in seen:
        task = session.store.task(each.task)
        if task is None:
            session.note(f"command {each.id} has changed its status in the meantime and is omitted")
            continue
        try:
            if each.status in OF_LISTS:
                commands = CommandList.decode(task.data).commands
                yield next(command for command in commands if command.id == each.id)
            else:
                yield Command.decode(task.data)
        except NotACommand as problem:
            raise Failure(f"command {each.id}: {problem}") from None


@contextmanager
def reporting(session: Session, nothing: str) -> Iterator[None]:
    """Report problems with files line by line, and end with a failure."""
    try:
        yield
    except NotFiles as wrong:
        for problem in wrong.problems[:MOST_PROBLEMS]:
            session.note(problem)
        if len(wrong.problems) > MOST_PROBLEMS:
            session.note(f"and {number(len(wrong.problems) - MOST_PROBLEMS)} more")
        count = len(wrong.problems)
        raise Failure(f"{nothing}: {number(count)} problem{'' if count == 1 else 's'}") from None
    except OSError as problem:
        raise Failure(f"{problem.filename}: {problem.strerror}") from None


# ---- Commands of operators that change shell commands and lists: retry, stash, unstash, archive, reopen


ids = click.argument("ids", nargs=-1, metavar="[ID...]")
all_ = click.option("--all", "is_all", is_flag=True, help="All in the project.")
lists = click.option(
    "--list", "lists", type=parameter_types.ID, multiple=True, metavar="TASK", help="A list; may be repeated."
)

NEVER_IN_LISTS = RESULTS | {CommandStatus.NEW, CommandStatus.NEW_STASHED}


@command("retry", needs=Scope.COMMANDS, below=commands)
@ids
@project
@click.option("--status", type=click.Choice([each.value for each in sorted(FINAL)]))
@click.option("--all", "is_all", is_flag=True, help="All commands in failed_count or failed_time.")
@parameter_types.reason
def retry(session: Session, /, project: str, status: str | None, is_all: bool, reason: str, **which: Any) -> None:
    """Run finished commands again as new ones: by ID, by status, or all that failed."""
    if bool(which["ids"]) + bool(status) + is_all != 1:
        raise click.UsageError("give exactly one of IDs, --status and --all")
    named = chosen(session, project, is_all=bool(status) or is_all, **which)
    tell(
        session,
        session.store.commands.retry(project, named, status=CommandStatus(status) if status else None, reason=reason),
        "queued again",
    )


def _changing(verb: str, what: str, help: str, *options: Any) -> None:
    """Make the command that changes commands, and with the option `lists` also lists."""

    def change(session: Session, /, project: str, reason: str, **which: Any) -> None:
        changed = getattr(session.store.commands, verb)(project, chosen(session, project, **which), reason)
        tell(session, changed, what, "command or list" if lists in options else "command")

    change.__doc__ = help
    for option in reversed((ids, *options, all_, project, parameter_types.reason)):
        change = option(change)
    command(verb, needs=Scope.COMMANDS, below=commands)(change)


_changing("stash", "stashed", "Hold back new commands and open lists until they are unstashed.", lists)
_changing("unstash", "unstashed", "Release stashed commands and lists.", lists)
_changing("archive", "archived", "Archive completed commands.")


@command("cancel", needs=Scope.COMMANDS, below=commands)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@project
@parameter_types.reason
def cancel(session: Session, /, ids: tuple[str, ...], project: str, reason: str) -> None:
    """Cancel commands that have not ended, by their ids. The other commands of their lists go on."""
    changed = session.store.commands.cancel(project, ids, reason)
    if not changed.changed:
        raise Failure(f"no such command of the project {project} is waiting or running")
    tell(session, changed, "cancelled", "command")


@command("reopen", needs=Scope.COMMANDS, below=commands)
@click.argument("task", type=parameter_types.ID)
@project
@parameter_types.reason
def reopen(session: Session, /, task: int, project: str, reason: str) -> None:
    """Reopen a list whose worker is known to be dead, by its task id."""
    changed = session.store.commands.reopen(project, task, reason)
    if not changed.changed:
        raise Failure(f"list {task} of the project {project} does not exist or is not running")
    tell(session, changed, "open again", "list")


def chosen(
    session: Session, project: str, *, ids: Sequence[str], is_all: bool, lists: Sequence[int] = ()
) -> Sequence[int] | None:
    """Return the ids of the selected tasks; None for all."""
    if bool(ids or lists) == is_all:
        raise click.UsageError("give either IDs or --all")
    return None if is_all else [*tasks_of(session, project, ids), *lists]


def tasks_of(session: Session, project: str, ids: Sequence[str]) -> list[int]:
    """Return the task ids of commands. Raises Failure for a command in a list, which would affect others."""
    seen = [found(session, project, id).newest for id in ids]
    for each in seen:
        if each.status not in NEVER_IN_LISTS:
            raise Failure(f"command {each.id} is in list {each.task}, which is {each.status}")
    return [each.task for each in seen]


def tell(session: Session, asked: ChangedCommands, what: str, one: str = "command") -> None:
    changed = asked.changed
    session.tell([{"changed": changed}])
    many = " or ".join(f"{each}s" for each in one.split(" or "))
    session.say(f"{number(changed)} {one if changed == 1 else many} {what}")


# ---- Submit command lines to a project


FIELD = re.compile(r"^commands\[(\d+)\]\.")
MOST_BYTES = 2**23  # Of lines in a request, which are longer as JSON.
STANDARD_INPUT = "-"

Numbered = tuple[int, str | bytes]  # The number of a line, and the line.


def until_s(text: str) -> int:
    """Parse a time, or a time span from now by this machine's clock, to seconds since the Epoch."""
    at_ms = parameter_types.timespec_ms(text)
    return (at_ms if at_ms > 0 else now_ms() - at_ms) // 1_000


def seconds(text: str) -> int:
    return math.ceil(parameter_types.duration_ms(text) / 1_000)


@command("submit", needs=Scope.COMMANDS, below=commands)
@click.argument("lines", nargs=-1, metavar="[LINE...]")
@click.option(
    "--file",
    type=click.File("rb"),
    metavar="FILE",
    help="File with a command per line; skips blank lines and those that begin with #. - for standard input.",
)
@click.option(
    "--from-line", type=parameter_types.Number(min=1), default=1, metavar="N", help="First line of the file to submit."
)
@project
@click.option(
    "--until", type=until_s, metavar="TIME", help="Latest time to start: 2026-01-31T12:00, or 2h [default: 7d]."
)
@click.option(
    "--expected", type=seconds, metavar="TIME", help="Expected maximum run time of each command [default: 1min]."
)
@click.option(
    "--max-fails",
    type=parameter_types.Number(min=1),
    metavar="N",
    help="Give up on a command after this many failures [default: 3].",
)
@click.option("--stashed", is_flag=True, help="Don't run them until `commands unstash`.")
@click.option("--then", multiple=True, metavar="LINE", help="A command to submit once when all these have succeeded.")
@click.option("--batch", type=parameter_types.ID, default=None, metavar="ID", help="An open batch that they join.")
@click.option(
    "--after", type=parameter_types.ID, default=None, metavar="ID", help="A batch after which to submit them."
)
def submit(
    session: Session,
    /,
    lines: Sequence[str],
    file: IO[bytes] | None,
    from_line: int,
    project: str,
    stashed: bool,
    then: Sequence[str],
    batch: int | None,
    after: int | None,
    **how: Any,
) -> None:
    """Submit each LINE as a shell command for the workers of the project; - reads lines from standard input.

    taskstore commands submit "echo 'A'; sleep 2; echo 'B'"
    """
    how["expected_duration"] = how.pop("expected")
    if file is None and lines == (STANDARD_INPUT,):
        file, lines = sys.stdin.buffer, ()
    if bool(lines) == bool(file) or STANDARD_INPUT in lines:
        raise click.UsageError("give either LINEs or --file FILE, with - for standard input")
    if lines and from_line > 1:
        raise click.UsageError("--from-line needs --file FILE, or - for standard input")
    if sum(map(bool, (then, batch, after))) > 1:
        raise click.UsageError("give only one of --then, --batch and --after")
    kept = {"stashed": stashed, "then": then, "batch": batch or 0, "after": after or 0}
    if file is None:
        made = submitted(session, project, enumerate(lines, 1), kept, how)
        if after:
            tell_later(session, len(lines), project, after)
        else:
            tell_submitted(session, project, made)
    else:
        submit_file(session, file, from_line, project, kept, how)


def submit_file(
    session: Session, file: IO[bytes], from_line: int, project: str, kept: dict[str, Any], how: Mapping[str, Any]
) -> None:
    """Submit a file in requests of up to 1 000 lines, each applied whole or not at all."""
    has_more = bool(kept["then"])  # A batch that is held until the end of the file.
    count, newest = 0, list[CommandSeen]()
    wanted = (line for place, line in enumerate(without_mark(file), 1) if place >= from_line)
    with session.progress() as progress:
        bar = progress.add_task("submitting", total=None)
        for first, piece in pieces(wanted, MOST_BYTES, counts):
            begin = first + from_line - 1
            so_far = f"{number(count)} commands were submitted; continue with --from-line {begin}"
            with telling(session, count, so_far):
                given = list(numbered(piece, begin))
                newest = submitted(session, project, given, {**kept, "hold": bool(kept["then"])}, how)
            if newest:
                kept |= {"then": (), "batch": newest[-1].batch}
            count += len(given)
            progress.update(bar, completed=count)
            session.tell(map(as_json, newest))
    if count == 0:
        raise click.UsageError("the file must have at least one line that is neither blank nor begins with #")
    if has_more:
        session.store.batches.release(newest[-1].batch)
    if kept["after"]:
        tell_later(session, count, project, kept["after"])
    else:
        session.say(f"submitted {counted(count, 'command')} to project {project}, the last one as {newest[-1].id}")
        tell_batch(session, newest)


def numbered(piece: Sequence[bytes], begin: int) -> Iterator[Numbered]:
    """Yield the lines that are neither blank nor comments, with their numbers."""
    return ((place, line.rstrip(b"\r\n")) for place, line in enumerate(piece, begin) if counts(line))


def submitted(
    session: Session, project: str, lines: Iterable[Numbered], kept: Mapping[str, Any], how: Mapping[str, Any]
) -> list[CommandSeen]:
    """Submit up to MOST_LINES lines. Raises InvalidInput, which names lines by their numbers."""
    given = list(lines)
    if len(given) > MOST_LINES:
        raise click.UsageError(f"must have at most {MOST_LINES} LINEs; use --file for more")
    wanted = [Submission.of(line, **how) for _, line in given]
    try:
        return session.store.commands.submit(project, wanted, **kept)
    except InvalidInput as wrong:
        fields = {
            FIELD.sub(lambda at: f"line {given[int(at[1])][0]}: ", path): texts for path, texts in wrong.fields.items()
        }
        raise type(wrong)(fields) from None


def tell_submitted(session: Session, project: str, made: Sequence[CommandSeen]) -> None:
    session.tell(map(as_json, made))
    for each in made:
        session.say(f"submitted command {each.id} to project {project}")
    tell_batch(session, made)


def tell_later(session: Session, count: int, project: str, after: int) -> None:
    session.say(f"project {project} gets {counted(count, 'command')} once batch {after} has succeeded")


def tell_batch(session: Session, made: Sequence[CommandSeen]) -> None:
    if batch := made[-1].batch:
        session.say(f"they belong to batch {batch}: `{session.typed(f'batches show {batch}')}` shows it")
