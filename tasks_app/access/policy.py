"""The rights of people and tokens, the same for REST, gRPC, console, websocket and admin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connections
from django.db.models import Q, QuerySet

from taskstore.types.scalars import Action as Action

from ..conf.commands import COMMANDS_ARE_OFF, commands_are_on
from ..core.actors import EVERY_ACTION, Actor
from ..core.operations import GroupScope
from ..database import store_alias
from ..models import Scope, Task, Token
from .people import Person, must_choose_password, must_choose_passwords, name_of

# A signed-in person or a token; `actor_of` makes an Actor of it.
Principal = Token | AbstractBaseUser | AnonymousUser

# The prefix of a server's own token for programs on its machine, which is deleted when the server stops. A running
# server renews its token; the token of a lost node expires.
THIS_MACHINE = "this machine"
ANYTHING = "anything"  # The scope of every client on a server that was started with --no-auth.

SCOPES: Mapping[str, frozenset[Action]] = {
    Scope.READ: frozenset({Action.SEE, Action.SEE_PAYLOADS}),
    Scope.WORK: frozenset({Action.SEE, Action.SEE_PAYLOADS, Action.WORK}),
    Scope.OPERATE: frozenset({Action.SEE, Action.SEE_PAYLOADS, Action.WORK, Action.OPERATE}),
    Scope.COMMANDS: frozenset({Action.SEE, Action.SEE_PAYLOADS, Action.WORK, Action.COMMANDS}),
    ANYTHING: EVERY_ACTION - {Action.ADMINISTER},
}

# Groups of Django's users, which `migrate` makes with these permissions. The right to see payloads, which may be
# private, is separate from the role.
SEES_PAYLOADS = "see payloads"
# So is the right to submit shell commands, which run on the workers' machines.
COMMANDS = "commands"
ROLES: Mapping[str, frozenset[Action]] = {
    "viewer": frozenset({Action.SEE}),
    "operator": frozenset({Action.SEE, Action.WORK, Action.OPERATE}),
    "admin": EVERY_ACTION,
    SEES_PAYLOADS: frozenset({Action.SEE_PAYLOADS}),
    COMMANDS: frozenset({Action.COMMANDS}),
}
BESIDE_A_ROLE = (SEES_PAYLOADS, COMMANDS)

OF_TOKENS = "this needs a token with the scope commands"
OF_PEOPLE = "this needs the role commands or admin"


def actor_of(principal: Principal, reason: str = "") -> Actor:
    """Return the actor of a principal, for the verbs and the audit log."""
    name = f"token:{principal.name}" if isinstance(principal, Token) else name_of(principal)
    return Actor(name, scope_of(principal), actions_of(principal), reason)


def actions_of(principal: Principal) -> frozenset[Action]:
    """Return what the principal may do in the groups that it may touch."""
    if isinstance(principal, Token):
        return SCOPES[principal.scope]
    if not isinstance(principal, Person) or must_choose_password(principal):
        return frozenset()
    return actions_of_account(principal)


def actions_of_account(person: Person) -> frozenset[Action]:
    """Return what the account may do, also while its password is to be chosen."""
    if not person.is_active:
        return frozenset()
    # A model of the project may have neither superusers nor permissions.
    if getattr(person, "is_superuser", False):
        return EVERY_ACTION
    # Cached on the user object, which lives as long as a request: a page asks a dozen times.
    if not hasattr(person, "_task_store_actions"):
        has_permission = getattr(person, "has_perm", lambda _: False)
        found = frozenset(action for action in Action if has_permission(f"tasks_app.{codename(action)}"))
        person._task_store_actions = found  # type: ignore[attr-defined]
    actions: frozenset[Action] = person._task_store_actions  # type: ignore[attr-defined]
    return actions


def codename(action: Action) -> str:
    """Return the name of the action's permission: `tasks_app.see_payloads`, without the application."""
    return action.replace(" ", "_")


def given_by(permissions: Iterable[Permission]) -> frozenset[Action]:
    """Return the actions that these permissions allow."""
    codenames = {each.codename for each in permissions if each.content_type_id == _type_of_tasks()}
    return frozenset(action for action in Action if codename(action) in codenames)


def _type_of_tasks() -> int:
    return ContentType.objects.get_for_model(Task).pk  # Which is cached.


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
    because = ""
    if not commands_are_on():
        because = COMMANDS_ARE_OFF
    elif not may(principal, Action.COMMANDS):
        because = OF_TOKENS if isinstance(principal, Token) else OF_PEOPLE
    if not isinstance(principal, Token):
        return GroupScope(no_commands_because=because, holder=holder_of(principal))
    owners = tuple(principal.clients) or None
    return GroupScope(principal.group_scope.patterns, because, owners=owners, holder=holder_of(principal))


def holder_of(principal: Principal) -> str:
    """Return the name under which schedules and batches remember with whose rights they add; see access/rights.py."""
    if not isinstance(principal, Token):
        return name_of(principal) if isinstance(principal, Person) else ""
    # Clients of a server without tokens, and programs on its own machine, whose tokens end with the server.
    is_of_server = principal.pk is None or principal.name.startswith(THIS_MACHINE)
    return "" if is_of_server else f"token:{principal.name}"


def may_command(principal: Principal, group: str | None = None) -> bool:
    """Return whether the principal may change groups of shell commands, or this one, on this server."""
    return commands_are_on() and may(principal, Action.COMMANDS, group)


def has_administrator() -> bool:
    """Return whether there is a person for whom `may` allows `ADMINISTER`."""
    return _administrators().exists()


def administrators(most: int) -> list[str]:
    """Return the names of some people for whom `may` allows `ADMINISTER`."""
    return [name_of(person) for person in _administrators().order_by("pk")[:most]]


def _administrators() -> QuerySet[Any]:
    needed = Permission.objects.filter(content_type__app_label="tasks_app", codename=codename(Action.ADMINISTER))
    is_one = Q(is_superuser=True) | Q(groups__permissions__in=needed) | Q(user_permissions__in=needed)
    found = Person._default_manager.filter(is_one, is_active=True).exclude(pk__in=must_choose_passwords())
    return found.distinct()


def make_roles(using: str, apps: Any = installed, plan: Iterable[tuple[Any, bool]] = (), **_: Any) -> None:
    """Create the roles after a migration, or remove them. `apps`: the models as the migrations have left them.

    `plan`: the migrations that were made, or taken back. A group of the project with the name of a role stays as it
    is: who is in it may not expect more rights.
    """
    if any(is_back and migration.initial and migration.app_label == "tasks_app" for migration, is_back in plan):
        if using == store_alias():
            remove_roles()
        return
    # The tables are missing while only other applications have been migrated.
    if not {Group._meta.db_table, Permission._meta.db_table} <= {*connections[using].introspection.table_names()}:
        return
    create_permissions(installed.get_app_config("tasks_app"), verbosity=0, using=using, apps=apps)
    ours = Permission.objects.using(using).filter(content_type__app_label="tasks_app")
    if not ours.exists():  # This application is yet to be migrated.
        return
    kinds, models = ("add", "change", "delete", "view"), installed.get_app_config("tasks_app").get_models()
    of_django = [f"{kind}_{model._meta.model_name}" for model in models for kind in kinds]
    ours.filter(codename__in=of_django).delete()  # It made them of each table, for nobody.
    for role, actions in ROLES.items():
        group, is_new = Group.objects.using(using).get_or_create(name=role)
        if is_new:
            group.permissions.set(ours.filter(codename__in=map(codename, actions)))


def remove_roles() -> None:
    """Remove the roles and permissions, as the tables are gone. A group that is no more, or less, than a role stays."""
    for group in Group.objects.filter(name__in=ROLES):
        permissions = set(group.permissions.values_list("content_type__app_label", "codename"))
        if permissions == {("tasks_app", codename(action)) for action in ROLES[group.name]}:
            group.delete()
    ContentType.objects.filter(app_label="tasks_app").delete()
