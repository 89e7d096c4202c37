"""Who bears a label, in the words of each database, and the index that knows it."""

from __future__ import annotations

import json
from typing import Any

from django.db.models import Index

# Whoever looks for a label says so in these words, too: the index holds no other tasks.
BEARS_SOME = "labels <> '{}'"


def bears(name: str, value: str | None, vendor: str) -> tuple[str, tuple[str, ...]]:
    """A condition, and its parameters: the task has this label; `value` None: whatever its value."""
    sql, parameters = (_on_postgresql if vendor == "postgresql" else _on_sqlite)(name, value)
    return f"{BEARS_SOME} AND {sql}", parameters


def _on_postgresql(name: str, value: str | None) -> tuple[str, tuple[str, ...]]:
    if value is None:
        return "labels ? %s", (name,)
    return "labels @> CAST(%s AS jsonb)", (json.dumps({name: value}),)


def _on_sqlite(name: str, value: str | None) -> tuple[str, tuple[str, ...]]:
    """First the cheap question: whether the labels, as the store writes them, hold the text of this one."""
    if value is None:
        is_there = "EXISTS (SELECT 1 FROM json_each(labels) WHERE key = %s)"
        return f"instr(labels, %s) > 0 AND {is_there}", (f"{json.dumps(name)}:", name)
    is_there = "EXISTS (SELECT 1 FROM json_each(labels) WHERE key = %s AND value = %s)"
    return f"instr(labels, %s) > 0 AND {is_there}", (f"{json.dumps(name)}: {json.dumps(value)}", name, value)


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
