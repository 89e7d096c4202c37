"""Groups that rest for a while."""

from __future__ import annotations

from . import kinds
from .command import Scope, command
from .records import as_json
from .session import Session, now_ms
from .words import relative


@command("pause", needs=Scope.OPERATE)
@kinds.group
@kinds.reason
def pause(session: Session, group: str, reason: str) -> None:
    """Let claims find nothing in GROUP from now on; commits go on."""
    found = session.store.pause(group, reason)
    if session.is_json:
        session.tell([{"group": group, "paused": as_json(found)}])
    why = f": {found.reason}" if found.reason else ""
    session.say(f"{group} is paused by {found.by}, {relative(found.at_ms, now_ms())}{why}")


@command("resume", needs=Scope.OPERATE)
@kinds.group
@kinds.reason
def resume(session: Session, group: str, reason: str) -> None:
    """Let claims find again what is in GROUP."""
    session.store.resume(group, reason)
    if session.is_json:
        session.tell([{"group": group, "paused": None}])
    session.say(f"{group} goes on")
