"""What the server answered, as JSON: by the names that the API has for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec


def as_json(answer: Any) -> dict[str, Any]:
    """The members of an answer. A task is a line that `import` takes."""
    if isinstance(answer, msgspec.Struct):
        members: dict[str, Any] = msgspec.to_builtins(answer)
        return members
    return _members(answer)


def _members(answer: Any) -> dict[str, Any]:
    return {each.metadata.get("name") or each.name: _value(getattr(answer, each.name)) for each in fields(answer)}


def _value(value: Any) -> Any:
    if is_dataclass(value):
        return as_json(value)
    if isinstance(value, Mapping):
        return {name: _value(each) for name, each in value.items()}
    return [_value(each) for each in value] if isinstance(value, list | tuple) else value
