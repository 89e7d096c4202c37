"""How far the commands of a project are, which lists there are, and what came of the commands.

A scope hides the groups that it does not allow. Nothing here changes anything.
"""

from ..reading.listing import PAGE
from .detail import command, command_list
from .paging import MOST, lists, results
from .progress import overview, status

__all__ = ["MOST", "PAGE", "command", "command_list", "lists", "overview", "results", "status"]
