"""The description of the API: as OpenAPI, and as a page on which to try it."""

from __future__ import annotations

from functools import cache
from typing import Any

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.request import Request
from rest_framework.response import Response

from .base import OpenView


class Schema(OpenView):
    """The OpenAPI description of all of this."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        return Response(description())


@cache
def description() -> dict[str, Any]:
    """Made once: it takes a tenth of a second, and anyone may ask for it."""
    schema: dict[str, Any] = SchemaGenerator(urlconf="tasks_app.rest_api.urls").get_schema(request=None, public=True)
    return schema


class SchemaPage(SpectacularSwaggerSplitView):
    """Its script is an address of its own, because no page may hold one."""

    authentication_classes = ()
    permission_classes = ()
    url_name = "rest_api:schema"
    template_name = "rest_api/schema.html"
