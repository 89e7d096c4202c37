"""The people who sign in: the first admin, and passwords that last until their owner chooses another."""

from __future__ import annotations

import secrets

from django.contrib.auth.models import User
from django.db import transaction

from ..models import OneTimePassword

FIRST_ADMIN = "admin"
# 32 signs that can't be taken for each other, so that a password can be read from a terminal.
ALPHABET = "abcdefghjkmnpqrstuvwxyz234567890"


def make_first_admin() -> str | None:
    """Make the superuser `admin` when nobody exists yet.

    Returns the one-time password, which can't be had again; None when there is a user already.
    """
    with transaction.atomic():
        if User.objects.exists():
            return None
        password = random_password()
        # Not yet staff: Django's admin asks nobody else whether a user may come in.
        admin = User.objects.create_user(FIRST_ADMIN, password=password, is_superuser=True)
        OneTimePassword.objects.create(user=admin)
    return password


def nobody_has_come_yet() -> bool:
    """Whether the first admin still has the password that was printed."""
    return OneTimePassword.objects.filter(user__username=FIRST_ADMIN).exists()


def must_choose_password(user: User) -> bool:
    """Whether the password of this user was made by somebody else, and opens nothing but the choice of another."""
    # Kept on the user, who lives as long as a request: a page asks a dozen times.
    if not hasattr(user, "_must_choose_password"):
        user._must_choose_password = OneTimePassword.objects.filter(user=user).exists()  # type: ignore[attr-defined]
    return bool(user._must_choose_password)  # type: ignore[attr-defined]


def password_was_given(user: User) -> None:
    """Somebody else has set the password of this user, and knows it."""
    OneTimePassword.objects.get_or_create(user=user)


def password_was_chosen(user: User) -> None:
    """The user has a password of their own now."""
    was_one_time, _ = OneTimePassword.objects.filter(user=user).delete()
    if was_one_time and user.is_superuser:
        user.is_staff = True
        user.save(update_fields=["is_staff"])
    user._must_choose_password = False  # type: ignore[attr-defined]


def random_password() -> str:
    """80 random bits as four words of four signs."""
    signs = [secrets.choice(ALPHABET) for _ in range(16)]
    return "-".join("".join(signs[place : place + 4]) for place in range(0, 16, 4))
