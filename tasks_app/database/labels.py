"""The index that knows which tasks bear which labels. Each dialect has the conditions that use it."""

from __future__ import annotations

from typing import Any

from django.db.models import Index

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
