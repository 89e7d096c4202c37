"""What the migrations make beyond Django's tables: sequences, counters, partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import AddIndex, RunPython


class OwnSQL(RunPython):
    """A step of a migration: SQL statements for one kind of database only."""

    reduces_to_sql = True  # `sqlmigrate` shows them.

    def __init__(self, vendor: str, forwards: Iterable[str], backwards: Iterable[str] = ()) -> None:
        self.vendor = vendor
        super().__init__(self._running(forwards), self._running(backwards))

    def _running(self, statements: Iterable[str]) -> Callable[[Any, Any], None]:
        def run(apps: Any, schema_editor: Any) -> None:
            if schema_editor.connection.vendor == self.vendor:
                for statement in statements:
                    schema_editor.execute(statement)

        return run


def make(connection: BaseDatabaseWrapper) -> None:
    """Make it around tables that Django has made of the models alone, without the migrations."""
    folder = import_module("tasks_app.migrations")
    names = sorted(module.name for module in iter_modules(folder.__path__))
    modules = [import_module(f"{folder.__name__}.{name}") for name in names]
    steps = [step for module in modules for step in module.Migration.operations]
    installed: Any = apps
    indexes = [step for step in steps if isinstance(step, AddIndex)]
    with connection.schema_editor() as editor:
        # They belong on what the SQL puts in the place of such a table.
        for step in indexes:
            editor.remove_index(installed.get_model("tasks_app", step.model_name), step.index)
        for step in steps:
            if step in indexes:
                editor.add_index(installed.get_model("tasks_app", step.model_name), step.index)
            elif isinstance(step, OwnSQL):
                step.code(installed, editor)
