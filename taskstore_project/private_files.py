"""Keep the data directory private, with modes 0700 and 0600, and the key that signs sessions in it."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from taskstore.whole_files import whole_file

OTHERS = stat.S_IRWXG | stat.S_IRWXO
NAMED = 5  # Files in a warning.

SHORTEST = 50

log = logging.getLogger(__name__)


def put_right(folder: Path) -> None:
    """Make the directory and its contents private, and log a warning that lists what was not.

    Does not change files of other users, and no directory that is shared or contains more than a store.
    """
    if _is_shared(folder):
        log.warning(
            "%s is not used by the store alone: other users may be able to read the store's files in it", folder
        )
        return
    below = (Path(parent, name) for parent, folders, files in os.walk(folder) for name in (*folders, *files))
    changed = [path for path in (folder, *below) if _make_private(path)]
    if changed:
        names = ", ".join(str(path.relative_to(folder)) if path != folder else str(path) for path in changed[:NAMED])
        more = f" and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
        log.warning("corrected permissions in %s, which other users could read: %s%s", folder, names, more)


def _is_shared(folder: Path) -> bool:
    here = folder.resolve()
    with suppress(RuntimeError):  # A user without a home.
        if here == Path.home().resolve():
            return True
    return here == Path(here.anchor) or bool(here.stat().st_mode & stat.S_ISVTX)


def _make_private(path: Path) -> bool:
    """Remove the access of other users. Returns whether they had any."""
    try:
        status = path.lstat()
        is_ours = status.st_uid == os.geteuid() and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))
        if not (is_ours and status.st_mode & OTHERS):
            return False
        path.chmod(stat.S_IMODE(status.st_mode) & ~OTHERS)
    except FileNotFoundError:  # Another process has deleted it.
        return False
    except OSError as problem:
        log.warning("other users can read %s, and its permissions can't be changed: %s", path, problem.strerror)
        return False
    return True


def read_or_make(folder: Path) -> str:
    """Return the key in `folder`, creating both if necessary, with access for this user only.

    Raises ImproperlyConfigured when the directory can't be used.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / "secret_key"
        if not file.exists():
            # Of two commands that start together, one writes the key, and the other reads it.
            with suppress(FileExistsError), whole_file(file, mode=0o600, replaces=False) as opened:
                opened.write(_drawn().encode())
        key = file.read_text().strip()
    except (OSError, ValueError) as problem:
        raise ImproperlyConfigured(f"TASKSTORE_DATA or --data: can't keep data in {folder}: {problem}") from None
    if len(key) < SHORTEST:
        raise ImproperlyConfigured(
            f"{file} has no valid key: delete it to create a new one; all users must then sign in again"
        )
    return key


def read_or_draw(folder: Path) -> str:
    """Return the key in `folder`, or a new one for this process alone. Creates no file."""
    return read_or_make(folder) if (folder / "secret_key").exists() else _drawn()


def read(name: str, file: Path) -> str:
    """Return the key in the file of the variable. Raises ImproperlyConfigured when it is missing or too short."""
    try:
        key = file.read_text().strip()
    except (OSError, ValueError) as problem:
        raise ImproperlyConfigured(f"{name}: can't read the key in {file}: {problem}") from None
    if len(key) < SHORTEST:
        raise ImproperlyConfigured(f"{name}: the key in {file} must have at least {SHORTEST} characters")
    return key


def _drawn() -> str:
    return secrets.token_urlsafe(64)
