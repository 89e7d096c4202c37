"""What a server says of itself and of requests that it refuses."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from .scalars import prepare


class Health(Struct, frozen=True, kw_only=True):
    """The server process lives."""

    status: str = "ok"
    instance: Annotated[str, Meta(description="Differs after each start, and between processes.")]


class Problems(Struct, frozen=True, kw_only=True):
    """The request is not what is written here: what would be right, by the path of the field."""

    detail: str
    errors: dict[str, list[str]]


class Failure(Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    detail: str
    code: str | UnsetType = UNSET


prepare(Health, Problems, Failure)
