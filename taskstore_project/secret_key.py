"""The key that signs sessions: created at the first start in the data directory, or shared by several servers."""

import os
import secrets
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

SHORTEST = 50


def read_or_make(folder: Path) -> str:
    """Return the key in `folder`, creating both if necessary, with access for this user only.

    Raises ImproperlyConfigured when the directory can't be used.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / "secret_key"
        if not file.exists():
            make(file)
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
    return read_or_make(folder) if (folder / "secret_key").exists() else secrets.token_urlsafe(64)


def read(name: str, file: Path) -> str:
    """Return the key in the file of the variable. Raises ImproperlyConfigured when it is missing or too short."""
    try:
        key = file.read_text().strip()
    except (OSError, ValueError) as problem:
        raise ImproperlyConfigured(f"{name}: can't read the key in {file}: {problem}") from None
    if len(key) < SHORTEST:
        raise ImproperlyConfigured(f"{name}: the key in {file} must have at least {SHORTEST} characters")
    return key


def make(file: Path) -> None:
    # The draft is complete before it is linked, and only one link succeeds: two commands that start
    # together read the same key.
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as opened:
        opened.write(secrets.token_urlsafe(64))
    try:
        os.link(draft, file)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
