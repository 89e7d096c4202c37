"""The API sits at the root, and no path ends with a slash (contract.md section 3).

Each row of `taskstore.endpoints` is served by a method of a view in these modules.
"""

from typing import Any

from django.urls import path, register_converter

from taskstore.endpoints import Endpoint

from . import audit, commands, files, groups, health, hot_path, jobs, operations, schedules, schema, search, views
from .base import View

MODULES = (audit, commands, files, groups, health, hot_path, jobs, operations, schedules, schema, search, views)


class GroupName:
    """All that follows, with any character in it."""

    regex = "(?s:.+)"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(GroupName, "group_name")


def route_of(endpoint: Endpoint[Any]) -> str:
    kinds = {each.name: "group_name" if each.has_slashes else "str" for each in endpoint.path_parameters}
    return endpoint.path.removeprefix("/").format(**{name: f"<{kind}:{name}>" for name, kind in kinds.items()})


VIEWS = [
    each
    for module in MODULES
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, View) and each.served()
]

app_name = "rest_api"

urlpatterns = [
    *(path(route_of(view.served()[0]), view.as_view(), name=view.served()[0].name) for view in VIEWS),
    path("schema/ui", schema.SchemaPage.as_view(), name="schema_page"),
]
