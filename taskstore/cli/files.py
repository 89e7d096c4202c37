"""Tasks into files, and out of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

import click

from ..errors import InvalidInput
from ..units import size
from . import parameter_types
from .base import Scope, command
from .chunks import pieces
from .context import Session, telling
from .errors import Failure
from .tables import number

LINE = re.compile(r"^line (\d+)")


@command("export", needs=Scope.READ)
@click.argument("terms", nargs=-1, metavar="[TERM...]")
@click.option("--format", type=click.Choice(["ndjson", "csv"]), default="ndjson", show_default=True)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="File to write. It appears only when it is complete.")  # fmt: skip
def export(session: Session, terms: Sequence[str], format: str, output: Path | None) -> None:
    """Write the tasks that match every TERM to a file or to standard output; without a TERM, all tasks."""
    found = session.store.export_tasks(" ".join(terms), format=format)
    if output is None:
        write(session, found, sys.stdout.buffer)
        return
    draft = output.with_name(f"{output.name}.part")
    try:
        with draft.open("wb") as opened:
            written = write(session, found, opened)
        draft.replace(output)
    except OSError as problem:
        raise Failure(f"can't write {output}: {problem.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)
    session.note(f"{output}: {size(written)}")


def write(session: Session, pieces: Iterable[bytes], output: IO[bytes]) -> int:
    """Write all of them, and return how many bytes they are."""
    written = 0
    # A bar would write into what the terminal shows of the tasks.
    with session.progress(is_shown=not output.isatty()) as progress:
        bar = progress.add_task("exporting", total=None)
        for piece in pieces:
            output.write(piece)
            written += len(piece)
            progress.update(bar, completed=written)
    output.flush()
    return written


@command("import", needs=Scope.WORK)
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--group",
    shell_complete=parameter_types.group_names,
    default="",
    metavar="GROUP",
    help="Add all tasks to this group, whatever the lines say.",
)
@click.option("--from-line", type=click.IntRange(min=1), default=1, metavar="N", help="First line to import.")
def import_(session: Session, file: IO[bytes], group: str, from_line: int) -> None:
    """Add the tasks of an NDJSON file as written by `export`, in commits of 1 000 lines."""
    count = 0
    lines = (line for number, line in enumerate(file, 1) if number >= from_line)
    with session.progress() as progress:
        bar = progress.add_task("importing", total=None)
        for first, piece in pieces(lines):
            begin = first + from_line - 1
            with telling(session, count, f"{number(count)} tasks were imported; continue with --from-line {begin}"):
                count += import_piece(session, b"".join(piece), group, begin)
            progress.update(bar, completed=count)
    if session.is_json:
        session.tell([{"imported": count}])
    session.say(f"imported {number(count)} tasks")


def import_piece(session: Session, piece: bytes, group: str, begin: int) -> int:
    """Import the lines of which the first is number `begin`, and return how many tasks they are."""
    try:
        return session.store.import_tasks(piece, group).imported
    except InvalidInput as wrong:
        raise InvalidInput({in_file(path, begin): texts for path, texts in wrong.fields.items()}) from None


def in_file(path: str, begin: int) -> str:
    """`line 3: priority`, with the number that the line has in the file."""
    return LINE.sub(lambda found: f"line {int(found[1]) + begin - 1}", path)
