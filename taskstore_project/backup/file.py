"""The file of a backup: written whole or not at all, and checked when it is read."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, cast

import msgspec

from taskstore_project.base_command import CannotRun

FORMAT = 1
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 100_000  # Bytes.
BUFFER = 2**20
# Level 1 is several times as fast as the default, and a backup holds a snapshot open while it is written.
COMPRESSION = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 1}
# The errors of reading a truncated or damaged file.
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, msgspec.MsgspecError),
    *(EOFError, KeyError, ValueError, NotImplementedError, RuntimeError, RecursionError),
)


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a backup, in the file."""

    format: int
    made_at_ms: int  # By the database's clock, not after the moment of the snapshot.
    database: str
    migrations: dict[str, str]  # The last migration of each application with tables in the backup.
    ids: int  # The largest id given out.
    commits: int
    rows: dict[str, int]  # The number of rows of each table.

    @property
    def tasks(self) -> int:
        return self.rows["tasks_app_task"]


class Formatted(msgspec.Struct):
    """The part that manifests of all formats have in common."""

    format: int


class Draft:
    """A backup that is being written."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def put(self, name: str, lines: Iterable[bytes]) -> None:
        with self._archive.open(f"{name}.ndjson", "w", force_zip64=True) as part:
            for line in lines:
                part.write(line + b"\n")

    def end(self, manifest: Manifest) -> None:
        self._archive.writestr(MANIFEST, msgspec.json.encode(manifest))


@contextmanager
def drafted(file: Path) -> Iterator[Draft]:
    """Write a draft that replaces `file` when it is complete and on the disk, readable for its owner only.

    Raises CannotRun when it can't be written. Any failure leaves `file` as it was.
    """
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as opened:
                with zipfile.ZipFile(opened, "w", **COMPRESSION) as archive:  # type: ignore[call-overload]
                    yield Draft(archive)
                opened.flush()
                os.fsync(descriptor)
            unfinished.replace(file)
            sync_folder(file.parent)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as problem:
        raise CannotRun(f"can't write {file}: {problem.strerror}") from None


def sync_folder(folder: Path) -> None:
    """Write the name of a new file to the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # File systems that can't do it don't need it.
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Archive:
    """A backup that is being read. Damage raises CannotRun as soon as it is noticed."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        with archive.open(MANIFEST) as part:
            text = part.read(LARGEST_MANIFEST)
        made_as = msgspec.json.decode(text, type=Formatted).format
        if made_as > FORMAT:
            raise CannotRun(
                f"a newer Task Store wrote this backup (format {made_as}, here {FORMAT}): restore it with that version"
            )
        self.manifest = msgspec.json.decode(text, type=Manifest)

    def rows(self, name: str, kinds: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table, with values of these types."""
        decode, count = msgspec.json.Decoder(tuple[tuple(kinds)]).decode, 0  # type: ignore[misc]
        with doubted(self._archive.filename), self._archive.open(f"{name}.ndjson") as part:
            for count, line in enumerate(BufferedReader(cast("RawIOBase", part), BUFFER), start=1):  # noqa: B007
                yield decode(line)
            if count != self.manifest.rows[name]:
                raise EOFError


@contextmanager
def opened(file: Path) -> Iterator[Archive]:
    """Open a backup. Raises CannotRun when the file can't be read, or is not a complete backup."""
    with ExitStack() as stack:
        with doubted(file):
            archive = Archive(stack.enter_context(zipfile.ZipFile(file)))
        yield archive


@contextmanager
def doubted(file: Any) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise CannotRun(f"can't read {file}: {problem.strerror or problem}") from None
    except DAMAGE as problem:
        raise CannotRun(
            f"{file} is not a complete backup: it is truncated, damaged, or another kind of file"
        ) from problem
