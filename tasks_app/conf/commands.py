"""The switch that allows shell commands on this server."""

from __future__ import annotations

from django.conf import settings

COMMANDS_ARE_OFF = (
    "shell commands are off on this server. To allow them, start it with `up --commands` or `serve --commands`, "
    "or set TASKSTORE_COMMANDS=1"
)


def commands_are_on() -> bool:
    """Return whether this server accepts shell commands, that is, changes of groups that hold them."""
    return bool(getattr(settings, "TASKSTORE_COMMANDS", False))
