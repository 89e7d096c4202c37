"""The people of the project, whatever model they are; the first administrator, and one-time passwords."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404

from ..models import OneTimePassword

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User

    Person = User
else:
    Person = get_user_model()

NAME_LENGTH = 150  # Of an actor in the tables.
FIRST_ADMIN = "admin"
# 32 characters that can't be confused, so that a password can be read from a terminal.
ALPHABET = "abcdefghjkmnpqrstuvwxyz234567890"


def name_of(person: AbstractBaseUser | AnonymousUser) -> str:
    """Return the name under which a person acts: the username, without the colon that sets off what is no person."""
    name = str(person.get_username()).replace(":", "%3A")
    if len(name) <= NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: NAME_LENGTH - 1 - len(digest)]}#{digest}"


def named(username: str) -> dict[str, str]:
    """Return the condition, or the value, that a person has this username."""
    return {Person.USERNAME_FIELD: Person.normalize_username(username)}


def person_of(key: str) -> Person:
    """Return the person with this key, a number or whatever the model has. Raises Http404 when there is none."""
    try:
        return Person._default_manager.get(pk=key)
    except (Person.DoesNotExist, ValueError, ValidationError):
        raise Http404 from None


def set_flags(person: Person, **flags: bool) -> None:
    """Save those of the flags for which the model has a field: not each has `is_staff`."""
    names = {field.name for field in person._meta.concrete_fields} & flags.keys()
    for name in names:
        setattr(person, name, flags[name])
    person.save(update_fields=names)


def make_first_admin() -> str | None:
    """Create the superuser `admin` unless there is a user already.

    Returns the one-time password, which is not stored in plain text; None when there is a user already.
    """
    with transaction.atomic():
        if Person.objects.exists():
            return None
        password = random_password()
        # Not staff yet: Django's admin would let staff in with a one-time password.
        admin = Person.objects.create_user(FIRST_ADMIN, password=password, is_superuser=True)
        OneTimePassword.objects.create(user=admin)
    return password


def nobody_has_come_yet() -> bool:
    """Return whether the first admin still has the printed one-time password."""
    # Not in one query: the store may be in another database than people are.
    first = Person._default_manager.filter(**named(FIRST_ADMIN)).values_list("pk", flat=True)
    return OneTimePassword.objects.filter(user_id__in=list(first)).exists()


def must_choose_passwords() -> list[Any]:
    """Return the keys of those who have a one-time password."""
    return list(OneTimePassword.objects.values_list("user_id", flat=True))


def must_choose_password(user: Person) -> bool:
    """Return whether the user has a one-time password, which only allows the choice of another one."""
    # Cached on the user object, which lives as long as a request: a page asks a dozen times.
    if not hasattr(user, "_must_choose_password"):
        user._must_choose_password = OneTimePassword.objects.filter(user=user).exists()  # type: ignore[attr-defined]
    return bool(user._must_choose_password)  # type: ignore[attr-defined]


def password_was_given(user: Person) -> None:
    """Note that somebody else has set the user's password."""
    OneTimePassword.objects.get_or_create(user=user)


def password_was_chosen(user: Person) -> None:
    """Note that the user has chosen a password."""
    was_one_time, _ = OneTimePassword.objects.filter(user=user).delete()
    if was_one_time and user.is_superuser:
        set_flags(user, is_staff=True)
    user._must_choose_password = False  # type: ignore[attr-defined]


def random_password() -> str:
    """Return 80 random bits as four words of four characters."""
    return "-".join("".join(secrets.choice(ALPHABET) for _ in range(4)) for _ in range(4))
