"""With whose rights tasks are added later: when a batch closes, or a schedule is due.

Batches and schedules keep the name of the holder of these rights. `token:backup` means all valid tokens with this name,
so that rights survive a rotation of the token; `ann` means a person. The program itself, clients of a server without
tokens, and programs on the server's machine have no name: their rights do not end.

Rights are lost when the last token of the name is revoked or expires, or when the account is closed. Then the store
adds nothing that was planned with them, and drops nothing, until an operator takes it over or the rights are back.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

from django.db.models import Q, QuerySet
from django.utils import timezone

from ..conf.commands import COMMANDS_ARE_OFF, commands_are_on
from ..core.operations import GroupScope, why_out_of_reach
from ..database import atomic
from ..models import RightsHolder, Token
from .people import Person, name_of
from .policy import SCOPES, Action, actions_of_account, holder_of

TOKEN = "token:"  # noqa: S105 - no secret.
Rights = tuple[str, int, str]  # As in RightsHolder: groups, commands, lost.


def alive() -> QuerySet[Token]:
    """Return the tokens that are valid now."""
    return Token.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)


class Holders:
    """The rights that these holders have now."""

    def __init__(self, names: Iterable[str]) -> None:
        found = rights_of({name for name in names if name})
        self._holders = {
            name: RightsHolder(name=name, groups=groups, commands=may_command, lost=lost)
            for name, (groups, may_command, lost) in found.items()
        }

    def scope_of(self, name: str) -> GroupScope:
        """Return what the holder may do on this server, without regard to whether the rights are lost."""
        own = self._holders[name].scope if name else GroupScope()
        return own if commands_are_on() else replace(own, no_commands_because=COMMANDS_ARE_OFF)

    def why_not(self, name: str, groups: Collection[str]) -> str:
        """Say why nothing can be added to these groups with the rights of the holder; empty: it can."""
        return self.why_lacking(name, groups) or why_out_of_reach(self.scope_of(name), groups)

    def why_lacking(self, name: str, groups: Collection[str]) -> str:
        """Say why the rights of the holder do not suffice, whatever this server allows; empty: they do."""
        return self._holders[name].why_lacking(groups) if name else ""


def refresh(names: Collection[str] | None = None) -> None:
    """Update the stored rights of these holders, or of all. The transactions of batches read them."""
    known = RightsHolder.objects.all() if names is None else RightsHolder.objects.filter(name__in=names)
    before = {each.name: (each.groups, each.commands, each.lost) for each in known}
    for name, now in rights_of(before).items():
        if before[name] != now:
            groups, may_command, lost = now
            with atomic():
                RightsHolder.objects.filter(name=name).update(groups=groups, commands=may_command, lost=lost)


def rights_of(names: Iterable[str]) -> dict[str, Rights]:
    """Return the rights that the holders of these names have now."""
    of_tokens = [name for name in names if name.startswith(TOKEN)]
    people = [name for name in names if not name.startswith(TOKEN)]
    found = _of_people(people) if people else {}
    return found | (_of_tokens(of_tokens) if of_tokens else {})


def _of_tokens(names: Collection[str]) -> dict[str, Rights]:
    """Return the rights of the valid tokens of each name together."""
    by_name: dict[str, list[Token]] = defaultdict(list)
    for token in alive().filter(name__in=[name.removeprefix(TOKEN) for name in names]):
        by_name[holder_of(token)].append(token)
    found = {}
    for name in names:
        valid = [token for token in by_name[name] if Action.WORK in SCOPES[token.scope]]
        patterns = None
        if all(token.groups for token in valid):
            patterns = sorted({pattern for token in valid for pattern in token.groups})
        may_command = any(Action.COMMANDS in SCOPES[token.scope] for token in valid)
        lost = "" if valid else f'no token "{name.removeprefix(TOKEN)}" is valid any more: what it planned is held'
        found[name] = json.dumps(patterns), int(may_command), lost
    return found


def _of_people(names: Collection[str]) -> dict[str, Rights]:
    wanted, found = {*names}, dict.fromkeys(names, ("null", 0, ""))
    username = Person.USERNAME_FIELD
    plain = Person._default_manager.filter(**{f"{username}__in": [name.replace("%3A", ":") for name in names]})
    people = {name_of(person): person for person in plain}
    if missing := wanted - people.keys():  # Long names are shortened, see `name_of`.
        people |= {name: person for person in Person._default_manager.all() if (name := name_of(person)) in missing}
    for name in names:
        person = people.get(name)
        actions = actions_of_account(person) if person else frozenset()
        is_lost = actions.isdisjoint({Action.WORK, Action.OPERATE})
        lost = f'the account "{name}" is closed or has lost its role: what it planned is held' if is_lost else ""
        found[name] = "null", int(Action.COMMANDS in actions), lost
    return found
