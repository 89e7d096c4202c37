"""The SQL condition for the groups that patterns allow: a name, or with a star at the end all names that start so."""

from __future__ import annotations

from taskstore.types.scalars import GROUP_LENGTH

# Sorts after every name that a group can have.
BEYOND_EVERY_NAME = chr(0x10FFFF) * (GROUP_LENGTH + 1)

Patterns = tuple[str, ...] | None  # None: every group.


def allowed_by(patterns: Patterns, column: str = '"group"') -> tuple[str, tuple[str, ...]]:
    """Return the condition that the column has a name that one of the patterns allows, with its parameters."""
    if patterns is None:
        return "1 = 1", ()
    conditions, names = list[str](), list[str]()
    for pattern in patterns:
        if pattern.endswith("*"):
            # Not LIKE, which ignores case on SQLite.
            conditions.append(f"{column} >= %s AND {column} < %s")
            names += [pattern[:-1], pattern[:-1] + BEYOND_EVERY_NAME]
        else:
            conditions.append(f"{column} = %s")
            names.append(pattern)
    return f"({' OR '.join(conditions) or '1 = 0'})", tuple(names)
