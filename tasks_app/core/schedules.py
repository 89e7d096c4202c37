"""Which group a schedule feeds: to write a schedule is as good as writing there."""

from __future__ import annotations

import json

from taskstore.types.schedules import SCHEDULES
from taskstore.types.tasks import COMMAND_GROUPS

from .operations import GroupScope


def fed_by(data: bytes) -> str:
    """The group that the schedule with this data adds tasks to; empty: none, because it is broken."""
    try:
        added = json.loads(data)["task"]["group"]
    except RecursionError:
        return COMMAND_GROUPS  # Nobody knows: a scheduler, whose stack has more room left, may understand it.
    except (ValueError, LookupError, TypeError):
        return ""
    return added if isinstance(added, str) else ""


def why_forbidden(group: str, data: bytes, scope: GroupScope) -> str:
    """Why a task of the group with this data may be seen but not changed, as a sentence; empty: it may."""
    return scope.why_forbidden(group) or (scope.why_forbidden(fed_by(data)) if group == SCHEDULES else "")
