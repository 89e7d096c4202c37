"""The API sits at the root, and no path ends with a slash (contract.md section 3).

Each row of `taskstore.endpoints` is served by a function in these modules.
"""

from itertools import groupby
from typing import Any

from django.urls import path, register_converter

from taskstore.endpoints import Endpoint

from . import batches, commands, health, hot_path, jobs, operations, schema, views  # noqa: F401 - handlers.
from .base import HANDLERS, View


class GroupName:
    """All that follows, with any character in it."""

    regex = "(?s:.+)"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(GroupName, "group_name")


def route_of(row: Endpoint[..., Any, Any]) -> str:
    kinds = {name: "group_name" if row.has_slashes(name) else "str" for name in row.in_path}
    return row.path.removeprefix("/").format(**{name: f"<{kind}:{name}>" for name, kind in kinds.items()})


VIEWS = [View.of(*rows) for _, rows in groupby(sorted(HANDLERS, key=lambda row: row.path), key=lambda row: row.path)]

app_name = "rest_api"

urlpatterns = [
    *(path(route_of(row), view.as_view(), name=row.name) for view in VIEWS for row in [next(iter(view.rows.values()))]),
    path("schema/ui", schema.SchemaPage.as_view(), name="schema_page"),
]
