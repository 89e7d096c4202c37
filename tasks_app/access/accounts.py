"""Accounts of people: administrators add, close and reopen them, and change rights. The audit log records each change.

People can't change their own rights, and at least one administrator always remains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.core.exceptions import ValidationError
from django.db import DEFAULT_DB_ALIAS

from taskstore.errors import InvalidInput

from ..core.actors import EVERY_ACTION, PROGRAM, Actor
from ..database import atomic
from . import audit, sessions
from .audit import must_still_be
from .people import Person, name_of, named, password_was_given, random_password, set_flags
from .policy import BESIDE_A_ROLE, COMMANDS, ROLES, SEES_PAYLOADS, Action, given_by, has_administrator
from .rights import refresh

ROLE_NAMES = tuple(role for role in ROLES if role not in BESIDE_A_ROLE)  # Each includes the ones before it.
ADMIN = ROLE_NAMES[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """The rights of an account."""

    role: str  # One of ROLE_NAMES; empty: none.
    sees_payloads: bool
    commands: bool = False  # May submit shell commands, which workers run.


def rights_of(user: Person) -> Rights:
    """Return the rights of a user, active or not. Of several roles, as Django's admin can give, the highest counts."""
    permissions: list[Permission] = []
    if hasattr(user, "groups"):
        permissions = [each for group in user.groups.all() for each in group.permissions.all()]
        permissions += user.user_permissions.all()
    return rights_from(EVERY_ACTION if getattr(user, "is_superuser", False) else given_by(permissions))


def rights_from(held: Collection[Action]) -> Rights:
    """Return the rights of whoever may do this."""
    role = next((role for role in reversed(ROLE_NAMES) if ROLES[role] <= {*held}), "")
    return Rights(role=role, sees_payloads=Action.SEE_PAYLOADS in held, commands=Action.COMMANDS in held)


def add(name: str, rights: Rights, actor: Actor = PROGRAM) -> tuple[Person, str]:
    """Create an account. Returns it with its one-time password, which is not stored in plain text.

    Raises InvalidInput when the name is taken or invalid.
    """
    user = Person(**named(name))
    try:
        user.clean_fields(exclude=["password"])
        user.validate_unique()
    except ValidationError as wrong:
        found = wrong.message_dict
        texts = found.pop(Person.USERNAME_FIELD, [])
        texts += [f"{field}: {text}" for field, others in found.items() for text in others]
        raise InvalidInput({"name": texts}) from None
    _check_role(rights)
    password = random_password()
    user.set_password(password)  # Outside the transaction, because it takes half a second.
    with atomic(DEFAULT_DB_ALIAS):
        user.save()
        password_was_given(user)
        _give(user, rights)
        _write_down("add user", user, actor, after=asdict(rights))
    return user, password


def change_rights(user: Person, rights: Rights, actor: Actor = PROGRAM, *, version: str = "") -> None:
    """Give the account this role and no other.

    Raises InvalidInput, see `_may_lose`; for `version` when that is given and not that of the present rights.
    """
    _check_role(rights)
    with _may_lose(user, actor):
        before = rights_of(user)
        must_still_be(version, before, f"the rights of {user.get_username()}")
        _give(user, rights)
        sessions.look_again()
        refresh([name_of(user)])
        _write_down("change rights", user, actor, before=asdict(before), after=asdict(rights))


def close(user: Person, actor: Actor = PROGRAM) -> None:
    """Close an account. Its audit entries keep its name. Raises InvalidInput, see `_may_lose`."""
    with _may_lose(user, actor):
        Person._default_manager.filter(pk=user.pk).update(is_active=False)
        sessions.end_all_of(user)  # Otherwise they would continue when the account is reopened.
        refresh([name_of(user)])
        _write_down("close account", user, actor)


def open_again(user: Person, actor: Actor = PROGRAM) -> None:
    """Reopen an account, with its old password."""
    with atomic(DEFAULT_DB_ALIAS):
        Person._default_manager.filter(pk=user.pk).update(is_active=True)
        refresh([name_of(user)])
        _write_down("open account", user, actor)


def reset_password(user: Person, actor: Actor = PROGRAM) -> str:
    """Set and return a new one-time password. The old password and all sessions become invalid.

    Raises InvalidInput, see `_may_lose`: an administrator with a one-time password can't administer.
    """
    password = random_password()
    user.set_password(password)
    with _may_lose(user, actor):
        user.save(update_fields=["password"])
        password_was_given(user)
        sessions.end_all_of(user)
        _write_down("reset password", user, actor)
    return password


@atomic(DEFAULT_DB_ALIAS)
def sign_out_everywhere(user: Person, actor: Actor = PROGRAM) -> None:
    """End all sessions of the user, on every node within five seconds. People may end their own sessions.

    Raises InvalidInput where the project's sessions can't be ended.
    """
    if not sessions.can_be_ended():
        raise InvalidInput({"SESSION_ENGINE": ["must be taskstore_project.sessions to end sessions early"]})
    sessions.end_all_of(user)
    _write_down("sign out everywhere", user, actor)


@contextmanager
def keeps_an_administrator() -> Iterator[None]:
    """Undo the changes of the block and raise InvalidInput when they leave no administrator."""
    with atomic(DEFAULT_DB_ALIAS):
        # Serializes two administrators who remove each other's rights at the same moment.
        list(Group.objects.select_for_update().filter(name=ADMIN))
        yield
        if not has_administrator():
            raise InvalidInput({"account": ["must not be the last one with the role admin"]})


@contextmanager
def _may_lose(user: Person, actor: Actor) -> Iterator[None]:
    """Guard a change that may take rights away. Raises InvalidInput for one's own account or the last administrator."""
    if name_of(user) == actor.name:
        raise InvalidInput({"account": ["must not be your own: ask another administrator"]})
    with keeps_an_administrator():
        yield


def _give(user: Person, rights: Rights) -> None:
    beside = {SEES_PAYLOADS: rights.sees_payloads, COMMANDS: rights.commands}
    names = {rights.role} | {name for name, is_given in beside.items() if is_given}
    # A project that installs the store may have other groups, too.
    user.groups.remove(*Group.objects.filter(name__in=set(ROLES) - names))
    user.groups.add(*Group.objects.filter(name__in=names))
    if user.is_superuser and rights.role != ADMIN:
        set_flags(user, is_superuser=False, is_staff=False)
    is_admin = rights.role == ADMIN  # Which includes the others.
    wanted = replace(rights, sees_payloads=is_admin or rights.sees_payloads, commands=is_admin or rights.commands)
    if rights_of(user) != wanted:
        raise InvalidInput(
            {"role": ["can't be given: other groups or permissions of this person say otherwise. Change those first"]}
        )


def _check_role(rights: Rights) -> None:
    if rights.role not in ("", *ROLE_NAMES):
        raise InvalidInput({"role": [f"must be one of {', '.join(ROLE_NAMES)}, or empty for none"]})


def _write_down(action: str, user: Person, actor: Actor, **details: Any) -> None:
    audit.record(actor, action, selection=f"user {user.get_username()}", done=1, details=details)
