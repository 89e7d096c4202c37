"""Shell commands in lists: submit, bundle, settle, stash, retry and archive them.

A command is a task, and so is a list of commands; see command_record.py. Workers claim lists like any other task.
"""

from .bundling import ListMaker, make_lists, process_closed
from .cancelling import cancel, may_be_cancelled
from .changes import archive, new_commands, reopen, retry, stash, submission_of, submit, unstash
from .summaries import projects

__all__ = [
    "ListMaker",
    "archive",
    "cancel",
    "make_lists",
    "may_be_cancelled",
    "new_commands",
    "process_closed",
    "projects",
    "reopen",
    "retry",
    "stash",
    "submission_of",
    "submit",
    "unstash",
]
