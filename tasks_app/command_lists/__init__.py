"""Shell commands in lists, on the verbs: submitted, bundled, settled, parked, run again, put away.

A command and a list of them are tasks; see command_record.py. Workers claim lists as any other task.
"""

from .making import make_lists
from .processing import process_closed
from .reading import projects
from .submitting import Submission, submit

__all__ = [
    "Submission",
    "make_lists",
    "process_closed",
    "projects",
    "submit",
]
