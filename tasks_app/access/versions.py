"""The version of what a form shows: of two people who change the same thing, the second is told and undoes nothing."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from taskstore.errors import InvalidInput


def version_of(shown: Any) -> str:
    """Return a short text that differs for another value."""
    return hashlib.sha256(msgspec.json.encode(msgspec.to_builtins(shown))).hexdigest()[:16]


def must_still_be(version: str, present: Any, what: str) -> None:
    """Raise InvalidInput for `version` unless it is empty or that of the present value. `what`: for the sentence."""
    if version and version != version_of(present):
        text = f"someone has changed {what} since you opened the form"
        raise InvalidInput({"version": [f"{text}: open it again, and repeat your change"]})
