"""From a value of JSON to one of a type that can be asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from taskstore.errors import InvalidInput
from taskstore.types.requests import Asked

from ..managers import limits
from . import strict_json
from .size import refuse_many
from .wrong_fields import wrong_fields

AskedT = TypeVar("AskedT", bound=Asked)


def value_of(tree: Any, asked: type[AskedT]) -> AskedT:
    """The tree as a value of this type. Raises InvalidInput that names every wrong field."""
    value = _converted(tree, asked)
    if value is None or any(value.problems(limits())):
        raise InvalidInput(wrong_fields(tree, asked))
    return value


def decoded(body: bytes, asked: type[AskedT]) -> Iterator[AskedT]:
    """The one value of this type that a large body holds; to be done where nobody waits.

    Raises InvalidInput that names every wrong field, LimitExceeded when the body holds more values than it may.
    """
    refuse_many(body, limits().values)
    yield value_of(strict_json.read(body), asked)


def _converted(tree: Any, asked: type[AskedT]) -> AskedT | None:
    try:
        return msgspec.convert(tree, asked)
    except (msgspec.ValidationError, UnicodeEncodeError):  # The latter for lone surrogates in names.
        return None
