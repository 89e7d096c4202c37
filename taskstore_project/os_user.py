"""Who types a command."""

from __future__ import annotations

import getpass
import os


def users_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A container's user may have a number only.
        return f"user {os.getuid()}"
