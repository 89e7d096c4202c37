"""Parse and validate lines of JSON with commands and lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from taskstore.errors import refuse
from taskstore.types import sentences
from taskstore.types.checks import text
from taskstore.types.command_lines import Entry, Line
from taskstore.types.command_record import (
    Command,
    CommandList,
    CommandStatus,
    NotACommand,
    Output,
    from_base64,
    why_misplaced,
    why_no_id,
)
from taskstore.types.commands import why_no_line
from taskstore.types.scalars import LABEL_LENGTH
from taskstore.types.tasks import Problem

from ..conf.command_rules import MOST_COMMANDS
from ..reading.importing import read_lines
from ..wire import strict_json

LIST_NAME = re.compile("[0-9]{1,20}")


def entries_in(body: bytes) -> Mapping[int, Entry]:
    """Return the entries of the lines by number; running lists become open.

    Raises InvalidInput that names up to 20 wrong lines, and LimitExceeded when there are more than a commit may add.
    """
    lines: dict[str, int] = {}  # The line of each id.

    def entry_of(number: int, line: bytes) -> Entry:
        tree = strict_json.read(line)
        try:
            status, record = entry = Line.read(tree).entry
        except NotACommand as problem:
            raise strict_json.wrong(str(problem)) from None
        refuse((path, "is not a known field") for path in _unknown(tree, asdict(Line.of(entry))))
        refuse(_problems(status, record))
        duplicates: list[Problem] = []
        for path, command in commands_of(entry):
            if command.id in lines:
                duplicates.append((f"{path}id", f"must be unique: line {lines[command.id]} has {command.id} too"))
            lines[command.id] = number
        refuse(duplicates)
        if isinstance(record, CommandList) and status is CommandStatus.RUNNING:
            return CommandStatus.OPEN, CommandList(name=record.name, commands=record.commands)
        return entry

    return read_lines(body, entry_of)


def commands_of(entry: Entry) -> Iterator[tuple[str, Command]]:
    """Yield the commands of a line, each with its path there."""
    _, record = entry
    if isinstance(record, Command):
        yield "command.", record
    else:
        yield from ((f"list.commands[{place}].", command) for place, command in enumerate(record.commands))


def _unknown(tree: Any, known: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the JSON members that the parsed record does not have."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name in known:
                yield from _unknown(value, known[name], f"{path}{name}.")
            else:
                yield path + name
    elif isinstance(tree, list):
        for place, (value, each) in enumerate(zip(tree, known, strict=True)):
            yield from _unknown(value, each, f"{path.rstrip('.')}[{place}].")


def _problems(status: CommandStatus, record: Command | CommandList) -> Iterator[Problem]:
    if isinstance(record, CommandList):
        yield from _problems_of_list(status, record)
    for path, command in commands_of((status, record)):
        if why := why_no_id(command.id):
            yield f"{path}id", why
        if why := why_no_line(command.cmd):
            yield f"{path}cmd", why
        if why := why_misplaced(status, command):
            yield path.rstrip("."), why
        if command.run:
            yield from _problems_of_output(f"{path}run.out", command.run.out)
            yield from _problems_of_output(f"{path}run.err", command.run.err)


def _problems_of_list(status: CommandStatus, made: CommandList) -> Iterator[Problem]:
    if not LIST_NAME.fullmatch(made.name):
        yield "list.name", "must be a number of seconds"
    if not 1 <= len(made.commands) <= MOST_COMMANDS:
        yield "list.commands", f"must have between 1 and {MOST_COMMANDS} commands, not {len(made.commands)}"
    if status is CommandStatus.CLOSED and not made.worker:
        yield "list.worker", "is required for a closed list"
    yield from text("list.worker", made.worker)
    if len(made.directory) > LABEL_LENGTH:
        yield (
            "list.worker",
            f"must be shorter: name, worker and times must have at most {LABEL_LENGTH} characters together",
        )


def _problems_of_output(path: str, written: Output) -> Iterator[Problem]:
    if written.text and written.base64:
        yield f"{path}.base64", sentences.not_together("text")
    if from_base64(written.base64) is None:
        yield f"{path}.base64", sentences.BASE64
        return
    size = len(written.kept)
    if written.cut_at > size:
        yield f"{path}.cut_at", f"must be at most {size}, the number of bytes, not {written.cut_at}"
