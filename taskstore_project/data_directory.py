"""The files in a server's data directory beside the database: its lock, and its address for local programs."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from django.db import connections

from taskstore.whole_files import whole_file

from .base_command import CannotRun

DATABASE = "taskstore.sqlite3"
DATABASE_FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The contents of a server's lock: its identity, and after its end that all answered changes are on the disk."""

    pid: int = 0
    url: str = ""  # Empty: it does not listen yet.
    durability: str = "strict"
    has_ended: bool = True

    @property
    def may_have_lost_ids(self) -> bool:
        """Return whether ids that a client has seen may be missing on the disk."""
        return self.durability == "opportunistic" and not self.has_ended

    def __str__(self) -> str:
        where = f", {self.url}" if self.url else ""
        return f" (process {self.pid}{where})" if self.pid else ""


class FolderTaken(CannotRun):
    """Another server works in this directory."""

    def __init__(self, folder: Path, other: Note) -> None:
        super().__init__(f"another server{other} is using the data in {folder}: stop it, or choose another --data")


class Lock:
    """The lock of a directory's only server. The system releases it when the process dies.

    It is a separate file, because closing any other descriptor of a locked file can release the lock.
    """

    def __init__(self, descriptor: int, before: Note) -> None:
        self._descriptor = descriptor
        self._note = before
        self.before = before  # The note of the previous server.

    @classmethod
    def take(cls, folder: Path) -> Self:
        """Take the lock. Raises FolderTaken if another server has it, CannotRun if the directory can't be written."""
        try:
            descriptor = os.open(folder / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            raise CannotRun(f"can't keep data in {folder}: {problem.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = _read(descriptor)
            os.close(descriptor)
            raise FolderTaken(folder, other) from None
        lock = cls(descriptor, _read(descriptor))
        # Writes the identity at once; the rest of the previous note stays until `begin`.
        lock._write(pid=os.getpid(), url="")
        return lock

    def begin(self, url: str, durability: str) -> None:
        """Note that clients may see ids from now on. A crash leaves this note."""
        self._write(url=url, durability=durability, has_ended=False)

    def end(self) -> None:
        """Note that all answered changes are on the disk."""
        self._write(has_ended=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _write(self, **changed: Any) -> None:
        self._note = replace(self._note, **changed)
        line = json.dumps(asdict(self._note)).encode() + b"\n"
        # Never empty in between: a process that is killed here leaves the old note or the new one.
        os.pwrite(self._descriptor, line, 0)
        os.ftruncate(self._descriptor, len(line))
        # After a power loss the machine must not find the previous server's note.
        os.fsync(self._descriptor)


@contextmanager
def made_if_done(folder: Path) -> Iterator[None]:
    """Lock the directory, creating it if necessary. If the work in it fails, removes everything that was created.

    Raises FolderTaken when a server uses it, CannotRun when it can't be written.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    before = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise CannotRun(f"can't keep data in {folder}: {problem.strerror}") from None
    umask = os.umask(0o077)  # It determines the mode of SQLite's files.
    try:
        with Lock.take(folder):
            try:
                yield
            except BaseException:
                # Under the lock, so that no server uses the files.
                connections.close_all()
                for name in {*DATABASE_FILES} - before:
                    (folder / name).unlink(missing_ok=True)
                if made:
                    (folder / "server.lock").unlink(missing_ok=True)
                raise
    except BaseException:
        with suppress(OSError):  # Another program may have added a file.
            for each in made:
                each.rmdir()
        raise
    finally:
        os.umask(umask)


def _read(descriptor: int) -> Note:
    line, _, _ = os.pread(descriptor, 10_000, 0).partition(b"\n")
    if not line:  # A new directory.
        return Note()
    try:
        return Note(**json.loads(line))
    except (ValueError, TypeError):
        return Note(durability="opportunistic", has_ended=False)  # Assume the worst case.


class ServerFile:
    """`server.json`: the address and a token for programs of the same user on this machine.

    {"url": "http://127.0.0.1:8048", "grpc": "127.0.0.1:50053", "token": "ts_..."}; `grpc` is empty without gRPC.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "server.json"

    def write(self, url: str, grpc: str, token: str) -> None:
        with whole_file(self._file, mode=0o600) as opened:
            opened.write(json.dumps({"url": url, "grpc": grpc, "token": token}).encode())

    def url(self) -> str | None:
        """Return the address; None without the file (no server runs, or it runs elsewhere)."""
        return self._read("url")

    def token(self) -> str | None:
        """Return the token; None without the file (the previous server ended in good order)."""
        return self._read("token")

    def _read(self, name: str) -> str | None:
        try:
            return str(json.loads(self._file.read_bytes())[name])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)
