"""What a backup holds, table by table, in values that both databases have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec
from django.contrib.auth.models import User
from django.db import models

from tasks_app.models import (
    AuditEntry,
    BulkItem,
    BulkOperation,
    Client,
    CountDelta,
    EndedTask,
    GroupTotal,
    KeptAnswer,
    Level,
    OneTimePassword,
    PausedGroup,
    Payload,
    Rate,
    SavedSearch,
    Task,
    Token,
    WorkDone,
)

Row = tuple[Any, ...]

# Of the values in the file; the first that fits. All other columns are text.
KINDS: list[tuple[type[models.Field[Any, Any]], Any]] = [
    (models.BinaryField, bytes),
    (models.BooleanField, bool),
    (models.DateTimeField, datetime),
    (models.IntegerField, int),
    (models.JSONField, Any),
]


@dataclass(frozen=True)
class Table:
    """One table, its columns, and how their values differ between the file and a database."""

    model: type[models.Model]

    @property
    def name(self) -> str:
        return self.model._meta.db_table

    @cached_property
    def fields(self) -> list[Any]:
        return list(self.model._meta.concrete_fields)

    @property
    def columns(self) -> list[str]:
        return [field.column for field in self.fields]

    @property
    def quoted_columns(self) -> str:
        return ", ".join(f'"{column}"' for column in self.columns)

    @property
    def kinds(self) -> list[Any]:
        """The type of each column's values in the file."""
        return list(map(kind_of, self.fields))

    def for_the_file(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Rows as a database gives them."""
        return changed(rows, dict.fromkeys(self._places_of(models.JSONField), msgspec.Raw))

    def for_the_database(self, rows: Iterable[Row], database: Any) -> Iterator[Row]:
        """Rows as the file gives them."""
        times = dict.fromkeys(self._places_of(models.DateTimeField), database.ops.adapt_datetimefield_value)
        # PostgreSQL has a way of its own to write JSON, and on SQLite labels are found by the text as the store has it.
        texts = dict.fromkeys(self._places_of(models.JSONField), json.dumps)
        return changed(rows, times | texts)

    def _places_of(self, kind: type) -> list[int]:
        return [place for place, field in enumerate(self.fields) if isinstance(field, kind)]


def kind_of(field: Any) -> Any:
    holding = getattr(field, "target_field", field)  # A foreign key is what it leads to.
    kind = next((kind for of, kind in KINDS if isinstance(holding, of)), str)
    return kind | None if field.null else kind


def changed(rows: Iterable[Row], changes: Mapping[int, Callable[[Any], Any]]) -> Iterator[Row]:
    """The rows with other values in some places."""
    for row in rows:
        values = list(row)
        for place, change in changes.items():
            values[place] = change(values[place])
        yield tuple(values)


# In this order: who is named by others comes first.
TABLES = [
    Table(model)
    for model in (
        *(User, OneTimePassword, SavedSearch, Token, AuditEntry),
        *(Payload, Task, EndedTask, KeptAnswer, BulkOperation, BulkItem, PausedGroup),
        *(CountDelta, GroupTotal, Rate, WorkDone, Level, Client),
    )
]
