"""Who may do what: one function for REST, console, websocket and admin."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.db import connections
from django.db.models import Q, QuerySet

from .models import Scope, Token
from .people import must_choose_password


class Action(StrEnum):
    SEE = "see"  # Groups, counts, tasks without their data.
    SEE_PAYLOADS = "see payloads"  # The data of tasks.
    WORK = "work"  # Add and claim tasks, commit results.
    OPERATE = "operate"  # Override owners: requeue, move, edit, purge. See the audit: reasons may name people.
    ADMINISTER = "administer"  # Users and tokens.


Actor = Token | AbstractBaseUser | AnonymousUser

SCOPES: Mapping[str, set[Action]] = {
    Scope.READ: {Action.SEE, Action.SEE_PAYLOADS},
    Scope.WORK: {Action.SEE, Action.SEE_PAYLOADS, Action.WORK},
    Scope.OPERATE: {Action.SEE, Action.SEE_PAYLOADS, Action.WORK, Action.OPERATE},
}

# Groups of Django's users. Seeing payloads is given apart from the role: they may hold what is nobody's business.
SEES_PAYLOADS = "see payloads"
ROLES = {
    "viewer": {Action.SEE},
    "operator": {Action.SEE, Action.WORK, Action.OPERATE},
    "admin": set(Action),
    SEES_PAYLOADS: {Action.SEE_PAYLOADS},
}


def may(actor: Actor, action: Action, group: str | None = None) -> bool:
    """Whether the actor may do this, in this group if one is named."""
    if isinstance(actor, Token):
        return action in SCOPES[actor.scope] and (group is None or actor.group_scope.allows(group))
    if not isinstance(actor, User) or not actor.is_active or must_choose_password(actor):
        return False
    return actor.is_superuser or action in _actions_of_roles(actor)


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
