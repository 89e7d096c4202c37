"""What the server answered, as JSON: by the names that the API has for it."""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(answer: msgspec.Struct) -> dict[str, Any]:
    """The members of an answer. A task is a line that `import` takes."""
    members: dict[str, Any] = msgspec.to_builtins(answer)
    return members
