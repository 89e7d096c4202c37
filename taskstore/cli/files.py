"""Export tasks to files and import them, in pieces that are one commit each."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import click

from ..errors import InvalidInput
from ..types.tasks import Imported
from ..units import size
from ..whole_files import whole_file
from . import parameter_types
from .base import Failure, Scope, Session, command, telling
from .tables import number

LINE = re.compile(r"^line (\d+)")
MOST_LINES = 1_000
MOST_BYTES = 2**24


def counts(line: bytes) -> bool:
    """Whether a line is neither blank nor a comment."""
    return bool(line.strip()) and not line.startswith(b"#")


def without_mark(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file without the byte order mark that some editors write."""
    for place, line in enumerate(lines):
        yield line if place else line.removeprefix(codecs.BOM_UTF8)


def pieces(
    lines: Iterable[bytes], most_bytes: int = MOST_BYTES, counts: Callable[[bytes], object] = bytes.strip
) -> Iterator[tuple[int, list[bytes]]]:
    """Split lines into pieces of up to MOST_LINES and `most_bytes`, each with the number of its first line.

    Leaves out pieces without a line that `counts`, by default those of blank lines.
    """
    piece: list[bytes] = []
    first, size = 1, 0
    for place, line in enumerate(lines, 1):
        if piece and (len(piece) == MOST_LINES or size + len(line) > most_bytes):
            if any(map(counts, piece)):
                yield first, piece
            first, piece, size = place, [], 0
        piece.append(line)
        size += len(line)
    if any(map(counts, piece)):
        yield first, piece


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
    try:
        with whole_file(output) as opened:
            written = write(session, found, opened)
    except OSError as problem:
        raise Failure(f"can't write {output}: {problem.strerror}") from None
    session.note(f"{output}: {size(written)}")


def write(session: Session, pieces: Iterable[bytes], output: IO[bytes]) -> int:
    """Write all pieces and return the number of bytes."""
    written = 0
    # A progress bar would mix with tasks written to the terminal.
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
    help="Add all tasks to this group, regardless of the group in each line.",
)
@click.option("--from-line", type=parameter_types.Number(min=1), default=1, metavar="N", help="First line to import.")
def import_(session: Session, file: IO[bytes], group: str, from_line: int) -> None:
    """Add the tasks of an NDJSON file as written by `export`, in commits of 1 000 lines."""
    count = skipped = 0
    lines = (line for number, line in enumerate(file, 1) if number >= from_line)
    with session.progress() as progress:
        bar = progress.add_task("importing", total=None)
        for first, piece in pieces(lines):
            begin = first + from_line - 1
            with telling(session, count, f"{number(count)} tasks were imported; continue with --from-line {begin}"):
                names = [f"line {begin + place}" for place in range(len(piece))]
                imported = import_piece(session, piece, group, names)
                count += imported.imported
                skipped += imported.skipped
            progress.update(bar, completed=count)
    session.tell([{"imported": count, "skipped": skipped}])
    taken = f"; skipped {number(skipped)} whose keys are taken" if skipped else ""
    session.say(f"imported {number(count)} tasks{taken}")


def import_piece(session: Session, piece: Sequence[bytes], group: str, names: Sequence[str]) -> Imported:
    """Import lines. Raises InvalidInput, which calls the lines by these names."""
    try:
        return session.store.import_tasks(b"".join(piece), group)
    except InvalidInput as wrong:
        fields = {LINE.sub(lambda line: names[int(line[1]) - 1], path): why for path, why in wrong.fields.items()}
        raise InvalidInput(fields) from None
