"""A check of passwords that Django does not have."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError

LEAST_DIFFERENT = 5


class DifferentCharactersValidator:
    """Refuses passwords of few different characters, such as "aaaaaaaaaaaa" or "abababababab"."""

    def validate(self, password: str, user: Any = None) -> None:
        if len({*password.lower()}) < LEAST_DIFFERENT:
            raise ValidationError(
                f"This password must contain at least {LEAST_DIFFERENT} different characters.",
                code="password_too_uniform",
            )

    def get_help_text(self) -> str:
        return f"Your password must contain at least {LEAST_DIFFERENT} different characters."
