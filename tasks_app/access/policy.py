"""Who may do what, and who asks: the same for REST, gRPC, console, websocket and admin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.db import connections
from django.db.models import Q, QuerySet

from taskstore.types.rights import Action as Action

from ..core.actors import EVERY_ACTION, Actor
from ..core.operations import GroupScope
from ..models import Scope, Token
from .people import must_choose_password

# Who signs in to a server, or presents a token: `actor_of` makes an Actor of it.
Principal = Token | AbstractBaseUser | AnonymousUser

ANYTHING = "anything"  # The scope of whoever asks on a server that was started without tokens.

SCOPES: Mapping[str, frozenset[Action]] = {
    Scope.READ: frozenset({Action.SEE, Action.SEE_PAYLOADS}),
    Scope.WORK: frozenset({Action.SEE, Action.SEE_PAYLOADS, Action.WORK}),
    Scope.OPERATE: frozenset({Action.SEE, Action.SEE_PAYLOADS, Action.WORK, Action.OPERATE}),
    Scope.COMMANDS: frozenset({Action.SEE, Action.SEE_PAYLOADS, Action.WORK, Action.COMMANDS}),
    ANYTHING: EVERY_ACTION - {Action.ADMINISTER},
}

# Groups of Django's users. Seeing payloads is given apart from the role: they may hold what is nobody's business.
SEES_PAYLOADS = "see payloads"
# So is the right to decide what shells run, on the machines of the workers.
COMMANDS = "commands"
ROLES: Mapping[str, frozenset[Action]] = {
    "viewer": frozenset({Action.SEE}),
    "operator": frozenset({Action.SEE, Action.WORK, Action.OPERATE}),
    "admin": EVERY_ACTION,
    SEES_PAYLOADS: frozenset({Action.SEE_PAYLOADS}),
    COMMANDS: frozenset({Action.COMMANDS}),
}
BESIDE_A_ROLE = (SEES_PAYLOADS, COMMANDS)

COMMANDS_ARE_OFF = (
    "shell commands are off on this server: start it with `up --commands` or `serve --commands`, "
    "or set TASKSTORE_COMMANDS=1"
)
OF_TOKENS = "this needs a token with the scope commands"
OF_PEOPLE = "this needs the role commands or admin"


def actor_of(principal: Principal, reason: str = "") -> Actor:
    """Return who asks, as verbs and the audit know them."""
    name = f"token:{principal.name}" if isinstance(principal, Token) else principal.get_username()
    return Actor(name, scope_of(principal), actions_of(principal), reason)


def actions_of(principal: Principal) -> frozenset[Action]:
    """Return what the principal may do in the groups that it may touch."""
    if isinstance(principal, Token):
        return SCOPES[principal.scope]
    if not isinstance(principal, User) or not principal.is_active or must_choose_password(principal):
        return frozenset()
    return EVERY_ACTION if principal.is_superuser else _actions_of_roles(principal)


def may(principal: Principal, action: Action, group: str | None = None) -> bool:
    """Return whether the principal may do this, in this group if one is named."""
    if action not in actions_of(principal):
        return False
    return group is None or not isinstance(principal, Token) or principal.group_scope.allows(group)


def scope_needed(token: Token, action: Action) -> str:
    """Return what to say when the token does not allow the action."""
    needed = next(scope for scope in Scope if action in SCOPES[scope])
    return f"this needs a token with the scope {needed}, not {token.scope}"


def scope_of(principal: Principal) -> GroupScope:
    """Return the groups that the principal may touch, and what it lacks to change those with shell commands."""
    because = _missing_for_commands(principal)
    if not isinstance(principal, Token):
        return GroupScope(no_commands_because=because)
    return GroupScope(principal.group_scope.patterns, because, owners=tuple(principal.clients) or None)


def may_command(principal: Principal, group: str | None = None) -> bool:
    """Whether the principal may change groups with shell commands, or this one, on this server."""
    return commands_are_on() and may(principal, Action.COMMANDS, group)


def commands_are_on() -> bool:
    """Whether shell commands are switched on: groups that hold them can be changed through this server."""
    return bool(getattr(settings, "TASKSTORE_COMMANDS", False))


def _missing_for_commands(principal: Principal) -> str:
    if not commands_are_on():
        return COMMANDS_ARE_OFF
    if may(principal, Action.COMMANDS):
        return ""
    return OF_TOKENS if isinstance(principal, Token) else OF_PEOPLE


def _actions_of_roles(user: User) -> frozenset[Action]:
    # Kept on the user, who lives as long as a request: a page asks a dozen times.
    if not hasattr(user, "_task_store_actions"):
        roles = user.groups.values_list("name", flat=True)
        user._task_store_actions = frozenset().union(*(ROLES.get(role, frozenset()) for role in roles))  # type: ignore[attr-defined]
    actions: frozenset[Action] = user._task_store_actions  # type: ignore[attr-defined]
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
