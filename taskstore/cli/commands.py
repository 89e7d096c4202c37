"""Shell commands in lists: all parts of the command `commands`."""

from . import commands_change, commands_files, commands_read, commands_submit
from .commands_files import commands

__all__ = ["commands", "commands_change", "commands_files", "commands_read", "commands_submit"]
