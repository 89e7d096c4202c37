"""Write a file so that it is there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(file: Path, *, mode: int = 0o666, replaces: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name when it is complete and on the disk.

    A failure, even a killed process, leaves an existing file as it was. A symlink is followed, and what is no regular
    file, such as a pipe, is written straight through. `mode`: of a new file, less the umask. Raises OSError, and
    FileExistsError when the file exists and `replaces` is False.
    """
    if file.exists() and not file.is_file():
        with file.open("wb") as through:
            yield through
        return
    file = file.resolve()
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor, is_nameless = _create(draft, mode)
    try:
        with open(descriptor, "wb") as opened:
            yield opened
            opened.flush()
            os.fsync(descriptor)
            if is_nameless:
                # A directory's descriptor, even an unused one, makes Python follow the link to the file.
                os.link(f"/proc/self/fd/{descriptor}", draft, src_dir_fd=descriptor)
        if replaces:
            draft.replace(file)
        else:
            os.link(draft, file)
        _sync_folder(file.parent)
    finally:
        draft.unlink(missing_ok=True)


def _create(draft: Path, mode: int) -> tuple[int, bool]:
    """Return the descriptor of a new file, and whether it has no name yet: it vanishes with its process then."""
    with suppress(AttributeError, OSError):  # Not every system and file system has such files.
        return os.open(draft.parent, os.O_WRONLY | os.O_TMPFILE, mode), True
    return os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), False


def _sync_folder(folder: Path) -> None:
    """Write the name of a new file to the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # File systems that can't do it don't need it.
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
