"""Read directories of command files, and collect every problem in them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...types import sentences
from ...types.command_record import LONGEST_CMD, Command, why_no_id
from .texts import ERR, OUT, TASK, NotFiles, command_of, shown

LONGEST_TASK = LONGEST_CMD + 16 * 2**10  # Bytes.
LONGEST_OUTPUT = 10 * 2**20  # Bytes: the largest task that the store accepts.


@dataclass(slots=True)
class Folders:
    """The directories and files below `root`. Problems are collected instead of raised."""

    root: Path
    problems: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)  # The path of each command's file, by its id.

    def note(self, path: Path, why: str) -> None:
        self.problems.append(f"{self.place(path)}: {why}")

    @contextmanager
    def noting(self, path: Path) -> Iterator[None]:
        """Collect the problems that are raised about a path."""
        try:
            yield
        except NotFiles as wrong:
            for problem in wrong.problems:
                self.note(path, problem)
        except OSError as problem:
            self.note(path, f"can't be read: {problem.strerror}")

    def place(self, path: Path) -> str:
        """Return the path as problems name it."""
        return str(self.root) if path == self.root else shown(str(path.relative_to(self.root)))

    def directories(self, parent: Path, known: Collection[str] | None = None) -> Iterator[Path]:
        """Yield the directories in a directory, sorted. `known`: the allowed names; None allows any."""
        for entry in self._entries(parent):
            path = parent / entry.name
            if known is not None and entry.name not in known:
                self.note(path, sentences.one_of(sorted(known), entry.name))
            elif not entry.is_dir(follow_symlinks=False):
                self.note(path, "must be a directory, not a file or a link")
            else:
                yield path

    def commands(self, parent: Path) -> Iterator[tuple[Path, Command]]:
        """Yield the commands whose files are in a directory, sorted, each with the path of its `.task`."""
        names = set(self._files(parent))
        for name in sorted(names):
            task = parent / (name.rpartition(".")[0] + TASK)
            if name.endswith(TASK):
                with self.noting(task):
                    yield task, self._command(task, names)
            elif task.name not in names:
                self.note(parent / name, f"needs {self.place(task)}, which does not exist")

    def _files(self, parent: Path) -> Iterator[str]:
        for entry in self._entries(parent):
            if not entry.is_file(follow_symlinks=False):
                self.note(parent / entry.name, "must be a file, not a directory or a link")
            elif not entry.name.endswith((TASK, OUT, ERR)):
                self.note(parent / entry.name, f"must have a name that ends in {TASK}, {OUT} or {ERR}")
            else:
                yield entry.name

    def _entries(self, parent: Path) -> list[os.DirEntry[str]]:
        with self.noting(parent), os.scandir(parent) as found:
            return sorted(found, key=lambda entry: entry.name)
        return []

    def _command(self, task: Path, names: Collection[str]) -> Command:
        name = task.name.removesuffix(TASK)
        if why := why_no_id(name):
            raise NotFiles([why])
        if (place := self.places.setdefault(name, self.place(task))) != self.place(task):
            raise NotFiles([f"must have a unique id: {place} has the same"])
        out, err = (
            _content(task.with_name(name + end), LONGEST_OUTPUT) if name + end in names else b"" for end in (OUT, ERR)
        )
        return command_of(name, _content(task, LONGEST_TASK), out, err)


def _content(file: Path, most: int) -> bytes:
    with file.open("rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise NotFiles([f"its {file.suffix} file must be at most {most} bytes"])
    return content
