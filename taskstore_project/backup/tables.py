"""The tables of a backup, with values that both databases have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any

import msgspec
from django.apps import apps
from django.db import models

from tasks_app.access.people import Person
from tasks_app.models import CancelledTask, EndedSession, ProgressReport, SessionGeneration

Row = tuple[Any, ...]

# The types of values in the file; the first match counts. All other columns are text.
KINDS: list[tuple[type[models.Field[Any, Any]], Any]] = [
    (models.BinaryField, bytes),
    (models.BooleanField, bool),
    (models.DateTimeField, datetime),
    (models.IntegerField, Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]),
    (models.JSONField, Any),
]


@dataclass(frozen=True)
class Table:
    """A table with its columns, and the conversion of values between the file and a database."""

    model: type[models.Model]
    order: tuple[str, ...] = ()  # Of its columns; empty: as in the model.

    @property
    def name(self) -> str:
        return self.model._meta.db_table

    @cached_property
    def fields(self) -> list[Any]:
        fields = {field.column: field for field in self.model._meta.concrete_fields}
        return [fields[column] for column in self.order or fields]

    @property
    def columns(self) -> list[str]:
        return [field.column for field in self.fields]

    @property
    def quoted_columns(self) -> str:
        return ", ".join(f'"{column}"' for column in self.columns)

    @property
    def kinds(self) -> list[Any]:
        """Return the type of each column's values in the file."""
        return list(map(kind_of, self.fields))

    def for_the_file(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Convert rows of a database for the file."""
        return changed(rows, dict.fromkeys(self._places_of(models.JSONField), msgspec.Raw))

    def for_the_database(self, rows: Iterable[Row], database: Any) -> Iterator[Row]:
        """Convert rows of the file for a database."""
        times = dict.fromkeys(self._places_of(models.DateTimeField), database.ops.adapt_datetimefield_value)
        # PostgreSQL formats JSON differently, and on SQLite labels are found by the store's own format.
        texts = dict.fromkeys(self._places_of(models.JSONField), json.dumps)
        return changed(rows, times | texts)

    def _places_of(self, kind: type) -> list[int]:
        return [place for place, field in enumerate(self.fields) if isinstance(field, kind)]


def kind_of(field: Any) -> Any:
    holding = getattr(field, "target_field", field)  # A foreign key is what it leads to.
    kind = next((kind for of, kind in KINDS if isinstance(holding, of)), str)
    return kind | None if field.null else kind


def changed(rows: Iterable[Row], changes: Mapping[int, Callable[[Any], Any]]) -> Iterator[Row]:
    """Yield the rows with converted values in some columns."""
    for row in rows:
        values = list(row)
        for place, change in changes.items():
            values[place] = change(values[place])
        yield tuple(values)


# What only concerns the sessions and the work of this hour.
LEFT_OUT = {CancelledTask, EndedSession, ProgressReport, SessionGeneration}
# Others refer to people, who come first.
MODELS: list[type[models.Model]] = [Person, *apps.get_app_config("tasks_app").get_models()]
TABLES = [Table(model) for model in MODELS if model not in LEFT_OUT]
