"""The file of a backup: written whole or not at all, and checked when it is read."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from django.conf import settings
from django.db.migrations.recorder import MigrationRecorder

from tasks_app.access.people import Person
from tasks_app.database.table_version import APP, UNRELEASED
from taskstore.whole_files import whole_file
from taskstore_project.base_command import CannotRun, grouped

from .databases import Session, looking
from .tables import TABLES, Row, Table

FORMAT = 2  # 1 does not name the columns: they are those of the first migration.
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


# A restore goes on far beyond it, and still within what a database can count.
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Moment = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000)]  # Before the year 10 000.


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a backup, in the file."""

    format: Annotated[int, msgspec.Meta(ge=1)]
    made_at_ms: Moment  # By the database's clock, not after the moment of the snapshot.
    database: str
    migrations: dict[str, str]  # The last migration of each application with tables in the backup.
    ids: Number  # The largest id given out.
    commits: Number
    rows: dict[str, Number]  # The number of rows of each table.
    columns: dict[str, list[str]] = msgspec.field(default_factory=dict)  # Of each table, in their order.

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
    """Write a backup that replaces `file` when it is complete and on the disk, readable for its owner only.

    Raises CannotRun when it can't be written. Any failure leaves `file` as it was.
    """
    try:
        with (
            whole_file(file, mode=0o600) as opened,
            zipfile.ZipFile(opened, "w", **COMPRESSION) as archive,  # type: ignore[call-overload]
        ):
            yield Draft(archive)
    except OSError as problem:
        raise CannotRun(f"can't write {file}: {problem.strerror}") from None


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
        try:
            self.manifest = msgspec.json.decode(text, type=Manifest)
            if missing := [name for name in APPLICATIONS if name not in self.manifest.migrations]:
                raise msgspec.ValidationError(f"Object missing required field `{missing[0]}` - at `$.migrations`")
        except msgspec.ValidationError as problem:
            raise CannotRun(f"{archive.filename} has a manifest that no backup has: {problem}") from None

    def rows(self, name: str, kinds: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table, with values of these types."""
        decode, count = msgspec.json.Decoder(tuple[tuple(kinds)]).decode, 0  # type: ignore[misc]
        # Its data in Base64, or a kept answer with the data of many tasks.
        most = 4 * max(settings.TASKSTORE_MAX_DATA_BYTES, settings.TASKSTORE_MAX_REQUEST_BYTES)
        with doubted(self._archive.filename), self._archive.open(f"{name}.ndjson") as part:
            lines = BufferedReader(cast("RawIOBase", part), BUFFER)
            while line := lines.readline(most + 1):
                if len(line) > most:
                    raise CannotRun(
                        f"{self._archive.filename} has a row of more than {most} bytes in {name}: "
                        "TASKSTORE_MAX_DATA_BYTES and TASKSTORE_MAX_REQUEST_BYTES must be as where it was written"
                    )
                try:
                    yield decode(line)
                except msgspec.ValidationError:
                    if self.manifest.format == FORMAT:
                        raise
                    raise CannotRun(f"the backup {UNRELEASED}") from None
                count += 1
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


# ---- Write a backup of all tables at one moment, while the store is served


ROLES = "auth_user_groups"  # The roles of users, by name: the ids of roles differ between databases.
APPLICATIONS = ("auth", "tasks_app")
TELL_EVERY = 100_000  # Rows.

Tell = Callable[[str], None]
encode = msgspec.json.Encoder().encode


def write(file: Path, tell: Tell) -> Manifest:
    """Write the store to the file, replacing an existing one. Calls `tell` with the progress now and then.

    Raises CannotRun when the file can't be written; an existing file stays then.
    """
    with drafted(file) as draft, looking() as session:
        # The time first: a restore derives from it how many ids may have been given out since.
        made_at_ms = session.number(f"SELECT {session.dialect.clock}")
        counted: dict[str, int] = {}
        for table in TABLES:
            rows = table.for_the_file(session.rows(table))
            draft.put(table.name, map(encode, with_progress(rows, table.name, counted, tell)))
        draft.put(ROLES, map(encode, with_progress(roles(session), ROLES, counted, tell)))
        manifest = Manifest(
            format=FORMAT,
            made_at_ms=made_at_ms,
            database=session.dialect.name,
            migrations=migrations(session),
            ids=session.number(session.dialect.newest_id),
            commits=session.number(session.dialect.newest_commit),
            rows=counted,
            columns={table.name: table.columns for table in TABLES},
        )
        draft.end(manifest)
    return manifest


def with_progress(rows: Iterable[Row], name: str, counted: dict[str, int], tell: Tell) -> Iterator[Row]:
    """Yield the rows, and store their number in `counted`."""
    counted[name] = 0
    for count, row in enumerate(rows, start=1):
        yield row
        counted[name] = count
        if count % TELL_EVERY == 0:
            tell(f"{name}: {grouped(count)} rows")


def roles(session: Session) -> list[Row]:
    return session.execute(
        f"SELECT user_id, name FROM {ROLES} JOIN auth_group ON auth_group.id = group_id ORDER BY user_id, name"
    )


def tables_as(manifest: Manifest, known: Any) -> list[Table]:
    """Return the tables of a backup with their columns as in the file. `known`: the apps of the version that wrote it.

    Raises CannotRun if that version has others.
    """
    models = {model._meta.db_table: model for model in known.get_app_config(APP).get_models()}
    models[Person._meta.db_table] = Person
    names = manifest.rows.keys() - {ROLES}
    tables = [Table(models[name], tuple(manifest.columns.get(name, ()))) for name in manifest.rows if name in models]
    right = {name: {*Table(models[name]).columns} for name in models.keys() & {table.name for table in TABLES}}
    if {table.name: {*(table.order or table.columns)} for table in tables} != right or len(tables) < len(names):
        raise CannotRun(f"the backup {UNRELEASED}")
    return tables


def migrations(session: Session) -> dict[str, str]:
    """Return the last migration of each application with tables in a backup."""
    applied = MigrationRecorder(session.connection).applied_migrations()
    return {app: max(name for of, name in applied if of == app) for app in APPLICATIONS}
