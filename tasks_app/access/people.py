"""The first administrator, and one-time passwords."""

from __future__ import annotations

import secrets

from django.contrib.auth.models import User
from django.db import transaction

from ..models import OneTimePassword

FIRST_ADMIN = "admin"
# 32 characters that can't be confused, so that a password can be read from a terminal.
ALPHABET = "abcdefghjkmnpqrstuvwxyz234567890"


def make_first_admin() -> str | None:
    """Create the superuser `admin` unless there is a user already.

    Returns the one-time password, which is not stored in plain text; None when there is a user already.
    """
    with transaction.atomic():
        if User.objects.exists():
            return None
        password = random_password()
        # Not staff yet: Django's admin would let staff in with a one-time password.
        admin = User.objects.create_user(FIRST_ADMIN, password=password, is_superuser=True)
        OneTimePassword.objects.create(user=admin)
    return password


def nobody_has_come_yet() -> bool:
    """Return whether the first admin still has the printed one-time password."""
    return OneTimePassword.objects.filter(user__username=FIRST_ADMIN).exists()


def must_choose_password(user: User) -> bool:
    """Return whether the user has a one-time password, which only allows the choice of another one."""
    # Cached on the user object, which lives as long as a request: a page asks a dozen times.
    if not hasattr(user, "_must_choose_password"):
        user._must_choose_password = OneTimePassword.objects.filter(user=user).exists()  # type: ignore[attr-defined]
    return bool(user._must_choose_password)  # type: ignore[attr-defined]


def password_was_given(user: User) -> None:
    """Note that somebody else has set the user's password."""
    OneTimePassword.objects.get_or_create(user=user)


def password_was_chosen(user: User) -> None:
    """Note that the user has chosen a password."""
    was_one_time, _ = OneTimePassword.objects.filter(user=user).delete()
    if was_one_time and user.is_superuser:
        user.is_staff = True
        user.save(update_fields=["is_staff"])
    user._must_choose_password = False  # type: ignore[attr-defined]


def random_password() -> str:
    """Return 80 random bits as four words of four characters."""
    return "-".join("".join(secrets.choice(ALPHABET) for _ in range(4)) for _ in range(4))
