"""How far the commands of a project are, which lists there are, and what came of the commands.

A scope hides the groups that it does not allow. Nothing here changes anything.
"""

from ..listing import PAGE
from .counting import overview, status
from .finding import command, command_list
from .paging import MOST, lists, results
from .seen import (
    CommandSeen,
    CommandWhole,
    ListPage,
    ListSeen,
    ListWhole,
    ProjectCounts,
    ProjectStatus,
    ResultPage,
    RunningList,
    Statistics,
)

__all__ = [
    "MOST",
    "PAGE",
    "CommandSeen",
    "CommandWhole",
    "ListPage",
    "ListSeen",
    "ListWhole",
    "ProjectCounts",
    "ProjectStatus",
    "ResultPage",
    "RunningList",
    "Statistics",
    "command",
    "command_list",
    "lists",
    "overview",
    "results",
    "status",
]
