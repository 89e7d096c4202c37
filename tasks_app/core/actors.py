"""Who asks for a change, what they may do, and why they want it: one value from the request to the audit log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from taskstore.types.scalars import REASON_LENGTH, Action
from taskstore.types.sentences import text
from taskstore.types.tasks import Ending, Problem

from .operations import EVERY_GROUP, GroupScope, Operator
from .validation import refuse_forbidden_group

EVERY_ACTION = frozenset(Action)


@dataclass(frozen=True, slots=True)
class Actor:
    """A token, a person, a server, or the program itself, which has no name.

    `name` is what the audit log writes: `ann` is a user, `token:backup` a token, `node:web-1` a server that acts by
    itself. No user's name has a colon.
    """

    name: str
    scope: GroupScope = EVERY_GROUP
    actions: frozenset[Action] = EVERY_ACTION
    reason: str = ""

    def because(self, reason: str) -> Actor:
        """Return the same actor with a reason."""
        return replace(self, reason=reason)

    def may(self, action: Action) -> bool:
        return action in self.actions

    def must_change(self, group: str) -> None:
        """Raise Forbidden when the actor may see tasks of the group but not change them."""
        refuse_forbidden_group(self.scope, group)

    def operator(self, ending: Ending = Ending.CHANGED, **more: Any) -> Operator:
        """Return who overrides owners in a commit. `ending`: what the history says became of the tasks."""
        return Operator(name=self.name, ending=ending, reason=self.reason, **more)

    def problems(self) -> list[Problem]:
        """Return what is wrong with the reason."""
        return list(text("reason", self.reason, REASON_LENGTH))


# Code that calls a verb without saying who asks. It may change every group and leaves no entry in the audit log.
PROGRAM = Actor("")
