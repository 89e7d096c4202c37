"""Who may do what: one function for REST, console, websocket and admin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.db import connections
from django.db.models import Q, QuerySet

from taskstore.types.rights import Action as Action

from ..core.operations import GroupScope
from ..models import Scope, Token
from .people import must_choose_password

Actor = Token | AbstractBaseUser | AnonymousUser

ANYTHING = "anything"  # The scope of whoever asks on a server that was started without tokens.

SCOPES: Mapping[str, set[Action]] = {
    Scope.READ: {Action.SEE, Action.SEE_PAYLOADS},
    Scope.WORK: {Action.SEE, Action.SEE_PAYLOADS, Action.WORK},
    Scope.OPERATE: {Action.SEE, Action.SEE_PAYLOADS, Action.WORK, Action.OPERATE},
    Scope.COMMANDS: {Action.SEE, Action.SEE_PAYLOADS, Action.WORK, Action.COMMANDS},
    ANYTHING: {Action.SEE, Action.SEE_PAYLOADS, Action.WORK, Action.OPERATE, Action.COMMANDS},
}

# Groups of Django's users. Seeing payloads is given apart from the role: they may hold what is nobody's business.
SEES_PAYLOADS = "see payloads"
# So is the right to decide what shells run, on the machines of the workers.
COMMANDS = "commands"
ROLES = {
    "viewer": {Action.SEE},
    "operator": {Action.SEE, Action.WORK, Action.OPERATE},
    "admin": set(Action),
    SEES_PAYLOADS: {Action.SEE_PAYLOADS},
    COMMANDS: {Action.COMMANDS},
}
BESIDE_A_ROLE = (SEES_PAYLOADS, COMMANDS)

COMMANDS_ARE_OFF = (
    "shell commands are off on this server: start it with `up --commands` or `serve --commands`, "
    "or set TASKSTORE_COMMANDS=1"
)
OF_TOKENS = "it takes a token of the scope commands"
OF_PEOPLE = "it takes the role commands, or admin"


def may(actor: Actor, action: Action, group: str | None = None) -> bool:
    """Whether the actor may do this, in this group if one is named."""
    if isinstance(actor, Token):
        return action in SCOPES[actor.scope] and (group is None or actor.group_scope.allows(group))
    if not isinstance(actor, User) or not actor.is_active or must_choose_password(actor):
        return False
    return actor.is_superuser or action in _actions_of_roles(actor)


def scope_of(actor: Actor) -> GroupScope:
    """The groups that the actor may touch, what is missing to change those with shell commands, and for whom."""
    because = _missing_for_commands(actor)
    if not isinstance(actor, Token):
        return GroupScope(no_commands_because=because)
    return GroupScope(actor.group_scope.patterns, because, owners=tuple(actor.clients) or None)


def may_command(actor: Actor, group: str | None = None) -> bool:
    """Whether the actor may change groups with shell commands, or this one, on this server."""
    return commands_are_on() and may(actor, Action.COMMANDS, group)


def commands_are_on() -> bool:
    """Whether shell commands are switched on: groups that hold them can be changed through this server."""
    return bool(getattr(settings, "TASKSTORE_COMMANDS", False))


def _missing_for_commands(actor: Actor) -> str:
    if not commands_are_on():
        return COMMANDS_ARE_OFF
    if may(actor, Action.COMMANDS):
        return ""
    return OF_TOKENS if isinstance(actor, Token) else OF_PEOPLE


def _actions_of_roles(user: User) -> set[Action]:
    # Kept on the user, who lives as long as a request: a page asks a dozen times.
    if not hasattr(user, "_task_store_actions"):
        roles = user.groups.values_list("name", flat=True)
        user._task_store_actions = set().union(*(ROLES.get(role, set()) for role in roles))  # type: ignore[attr-defined]
    actions: set[Action] = user._task_store_actions  # type: ignore[attr-defined]
    return actions


def administrators() -> QuerySet[User]:
    """The people who may `ADMINISTER`, as `may` says of each."""
    roles = [role for role, actions in ROLES.items() if Action.ADMINISTER in actions]
    is_one = Q(is_superuser=True) | Q(groups__name__in=roles)
    return User.objects.filter(is_one, is_active=True, onetimepassword=None).distinct()


def make_roles(using: str, **_: Any) -> None:
    """The roles exist from the first migrate on."""
    # Without the table of groups: only other applications have been migrated so far.
    if Group._meta.db_table not in connections[using].introspection.table_names():
        return
    for role in ROLES:
        Group.objects.using(using).get_or_create(name=role)
