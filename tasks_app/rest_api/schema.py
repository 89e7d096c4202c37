"""The OpenAPI description."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from drf_spectacular.settings import spectacular_settings
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore import endpoints
from taskstore.endpoints import Endpoint
from taskstore.types.server import Failure, Problems

from .base import OpenView, serves

Tree = dict[str, Any]

REFERENCE = "#/components/schemas/{name}"
TOKEN = "token"  # noqa: S105 - no secret, but the name of the way to send one.
WITH_FIELDS = (400, 413)  # Failures that name fields.
METHODS = ("GET", "POST", "PUT", "DELETE")


class Schema(OpenView):
    @serves(endpoints.SCHEMA)
    def get(self, request: Request) -> Response:
        return Response(description())


@cache
def description() -> Tree:
    """Return the OpenAPI document. Made once, as anyone may ask for it."""
    from .urls import VIEWS  # One of them is above.

    served = [each for view in VIEWS for each in view.served() if each is not endpoints.SCHEMA]
    paths: dict[str, Tree] = {}
    components: Tree = {}
    for each in sorted(served, key=lambda each: (each.path, METHODS.index(each.method))):
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, components)
    return {
        "openapi": spectacular_settings.OAS_VERSION,
        "info": {
            "title": spectacular_settings.TITLE,
            "version": spectacular_settings.VERSION,
            "description": spectacular_settings.DESCRIPTION,
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {TOKEN: {"type": "http", "scheme": "bearer"}},
        },
        "externalDocs": spectacular_settings.EXTERNAL_DOCS,
    }


def _operation(endpoint: Endpoint[Any], components: Tree) -> Tree:
    """Return what there is to say of an endpoint; the types that it names are added to `components`."""

    def schema_of(kind: Any) -> Tree:
        (schema,), found = msgspec.json.schema_components([kind], ref_template=REFERENCE)
        components.update(found)
        return schema

    def answer(description: str, *kinds: Any, media: Sequence[str] = (endpoints.JSON,)) -> Tree:
        in_json, *others = map(schema_of, kinds)
        schema = {"anyOf": [in_json, *others]} if others else in_json
        other = {"type": "string", "format": "binary"} if bytes in kinds else {"type": "string"}
        content = {each: {"schema": schema if each == endpoints.JSON else other} for each in media}
        return {"description": description, "content": content}

    operation: Tree = {
        "operationId": endpoint.name,
        "description": endpoint.description,
        "tags": [endpoint.path.split("/")[1]],
    }
    if endpoint.parameters:
        in_path = endpoint.path_parameters
        operation["parameters"] = [
            {
                "in": "path" if each in in_path else "query",
                "name": each.name,
                "schema": dict(each.schema),
                **({"description": each.description} if each.description else {}),
                **({"required": True} if each in in_path else {}),
            }
            for each in endpoint.parameters
        ]
    if body := endpoint.body:
        is_needed = any(each.required for each in msgspec.structs.fields(body))
        operation["requestBody"] = {
            "content": {endpoint.body_media: {"schema": schema_of(body)}},
            **({"required": True} if is_needed else {}),
        }
    if endpoint.needs:
        operation["security"] = [{TOKEN: []}, *([{}] if endpoint.is_local else [])]
    operation["responses"] = {
        str(endpoint.status): answer("", *filter(None, [endpoint.answer, endpoint.or_answer]), media=endpoint.media),
        **{
            str(status): answer(why, Problems if status in WITH_FIELDS else Failure)
            for status, why in sorted(endpoint.failures.items())
        },
    }
    return operation


class SchemaPage(SpectacularSwaggerSplitView):
    """Its script is an address of its own, because no page may hold one."""

    authentication_classes = ()
    permission_classes = ()
    schema = None  # It is for people.
    url_name = "rest_api:schema"
    template_name = "tasks_app/schema.html"
