"""Shell commands in lists: all parts of the command `commands`."""

from . import commands_changing, commands_files, commands_looking, commands_submitting
from .commands_group import commands

__all__ = ["commands", "commands_changing", "commands_files", "commands_looking", "commands_submitting"]
