"""The operating system's user who runs a command."""

from __future__ import annotations

import getpass
import os

from tasks_app.core.actors import Actor


def users_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A container's user may have a number only.
        return f"user {os.getuid()}"


def actor() -> Actor:
    """Return the user as an actor for the audit log."""
    return Actor(f"{users_name()} (command line)")
