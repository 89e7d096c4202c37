"""Shell commands in lists, on the verbs: submitted, bundled, settled, parked, run again, put away.

A command and a list of them are tasks; see command_record.py. Workers claim lists as any other task.
"""

from .bundling import make_lists, process_closed
from .changes import archive, reopen, retry, stash, unstash
from .maker import ListMaker
from .records import projects
from .submitting import MOST_AT_ONCE, new_commands, submit, wrong_submissions

__all__ = [
    "MOST_AT_ONCE",
    "ListMaker",
    "archive",
    "make_lists",
    "new_commands",
    "process_closed",
    "projects",
    "reopen",
    "retry",
    "stash",
    "submit",
    "unstash",
    "wrong_submissions",
]
