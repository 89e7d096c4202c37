"""What texts of a form stand for, where they were not understood with a reason that names what would be right."""

from __future__ import annotations

from collections.abc import Mapping

from django.forms import ValidationError

from ..errors import InvalidInput
from . import reading


def labels_in(text: str) -> Mapping[str, str]:
    """A label a line. Raises ValidationError."""
    pairs = [line.partition("=") for line in text.splitlines() if line.strip()]
    if any(not name.strip() or not equals for name, equals, _ in pairs):
        raise ValidationError("One label a line, as name=value.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def number_in(field: str, text: str, **limits: int) -> int:
    """A whole number, `least` and `most` as in reading.whole_number. Raises ValidationError."""
    try:
        return reading.whole_number(field, text.strip(), **limits)
    except InvalidInput as wrong:
        raise ValidationError(wrong.fields[field]) from None
