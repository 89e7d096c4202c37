"""Submit command lines to a project."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import click

from ..errors import InvalidInput
from ..types.commands import CommandSeen, Submission
from . import parameter_types
from .base import Scope, Session, as_json, command, now_ms, telling
from .commands_files import commands
from .files import MOST_LINES, counts, pieces, without_mark
from .made import project
from .tables import number

FIELD = re.compile(r"^commands\[(\d+)\]\.")
MOST_BYTES = 2**23  # Of lines in a request, which are longer as JSON.
STANDARD_INPUT = "-"

Numbered = tuple[int, str]  # The number of a line, and the line.


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
def submit(
    session: Session,
    /,
    lines: Sequence[str],
    file: IO[bytes] | None,
    from_line: int,
    project: str,
    stashed: bool,
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
    if file is None:
        tell(session, project, submitted(session, project, enumerate(lines, 1), stashed, how))
    else:
        submit_file(session, file, from_line, project, stashed, how)


def submit_file(
    session: Session, file: IO[bytes], from_line: int, project: str, stashed: bool, how: Mapping[str, Any]
) -> None:
    """Submit a file in requests of up to 1 000 lines, each applied whole or not at all."""
    count, newest = 0, list[CommandSeen]()
    wanted = (line for place, line in enumerate(without_mark(file), 1) if place >= from_line)
    with session.progress() as progress:
        bar = progress.add_task("submitting", total=None)
        for first, piece in pieces(wanted, MOST_BYTES, counts):
            begin = first + from_line - 1
            so_far = f"{number(count)} commands were submitted; continue with --from-line {begin}"
            with telling(session, count, so_far):
                newest = submitted(session, project, numbered(piece, begin), stashed, how)
            count += len(newest)
            progress.update(bar, completed=count)
            session.tell(map(as_json, newest))
    if count == 0:
        raise click.UsageError("the file must have at least one line that is neither blank nor begins with #")
    session.say(f"submitted {number(count)} commands to project {project}, the last one as {newest[-1].id}")


def numbered(piece: Sequence[bytes], begin: int) -> Iterator[Numbered]:
    """Yield the lines that are neither blank nor comments as text, with their numbers."""
    for place, line in enumerate(piece, begin):
        if counts(line):
            try:
                yield place, line.rstrip(b"\r\n").decode()
            except UnicodeDecodeError:
                raise InvalidInput({f"line {place}": ["must be valid UTF-8"]}) from None


def submitted(
    session: Session, project: str, lines: Iterable[Numbered], stashed: bool, how: Mapping[str, Any]
) -> list[CommandSeen]:
    """Submit up to MOST_LINES lines. Raises InvalidInput, which names lines by their numbers."""
    given = list(lines)
    if len(given) > MOST_LINES:
        raise click.UsageError(f"must have at most {MOST_LINES} LINEs; use --file for more")
    wanted = [Submission(cmd=cmd, **how) for _, cmd in given]
    try:
        return session.store.commands.submit(project, wanted, stashed=stashed)
    except InvalidInput as wrong:
        fields = {
            FIELD.sub(lambda at: f"line {given[int(at[1])][0]}: ", path): texts for path, texts in wrong.fields.items()
        }
        raise type(wrong)(fields) from None


def tell(session: Session, project: str, made: Sequence[CommandSeen]) -> None:
    session.tell(map(as_json, made))
    for each in made:
        session.say(f"submitted command {each.id} to project {project}")
