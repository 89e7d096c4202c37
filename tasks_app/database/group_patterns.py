"""The SQL condition for the groups that patterns allow: a name, or with a star at the end all names that start so."""

from __future__ import annotations

from taskstore.types.scalars import GROUP_LENGTH

# Sorts after every name that a group can have.
BEYOND_EVERY_NAME = chr(0x10FFFF) * (GROUP_LENGTH + 1)

Patterns = tuple[str, ...] | None  # None: every group.


def bounds_of(pattern: str) -> tuple[str, str]:
    """Return the first name that a pattern allows, and where its range ends: empty, it allows this name only.

    A range, not LIKE: on SQLite LIKE takes capitals for small letters, so that a token for `pay/*` would see `PAY/x`.
    """
    prefix = pattern.removesuffix("*")
    return prefix, "" if prefix == pattern else prefix + BEYOND_EVERY_NAME


def allowed_by(patterns: Patterns, column: str = '"group"') -> tuple[str, tuple[str, ...]]:
    """Return the condition that the column has a name that one of the patterns allows, with its parameters."""
    if patterns is None:
        return "1 = 1", ()
    conditions, names = list[str](), list[str]()
    for pattern in patterns:
        first, beyond = bounds_of(pattern)
        conditions.append(f"{column} >= %s AND {column} < %s" if beyond else f"{column} = %s")
        names += [first, beyond] if beyond else [first]
    return f"({' OR '.join(conditions) or '1 = 0'})", tuple(names)
