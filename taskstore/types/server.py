"""Health checks and error responses."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from .scalars import prepare


class Health(Struct, frozen=True, kw_only=True):
    """The server process is running."""

    status: str = "ok"
    instance: Annotated[str, Meta(description="An id that is different for each process and after each start.")]


class Problems(Struct, frozen=True, kw_only=True):
    """The request is invalid: the messages for each field, by its path."""

    detail: str
    errors: dict[str, list[str]]


class Failure(Struct, frozen=True, kw_only=True):
    """Why the request failed."""

    detail: str
    code: str | UnsetType = UNSET


prepare(Health, Problems, Failure)
