"""The SQL condition for the groups that patterns allow: a name, or with a star at the end all names that start so."""

from __future__ import annotations

from typing import Any

from django.db.models import Index

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


# ---- The index that knows which tasks bear which labels. Each dialect has the conditions that use it


# Whoever looks for a label says so in these words, too: the index holds no other tasks.
BEARS_SOME = "labels <> '{}'"


class LabelIndex(Index):
    """Of the tasks that bear labels. A task without any pays for no more than a look at whether it does."""

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **asked: Any) -> Any:
        # Differs on SQLite because there no index looks into JSON. This one is read from end to end, which takes a
        # fraction of the time that the tasks themselves would.
        is_postgresql = schema_editor.connection.vendor == "postgresql"
        names = ["labels"] if is_postgresql else self.fields
        return schema_editor._create_index_sql(
            model,
            fields=[model._meta.get_field(name) for name in names],
            name=self.name,
            using=" USING gin" if is_postgresql else "",
            condition=BEARS_SOME,
            **asked,
        )
