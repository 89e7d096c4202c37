"""The OpenAPI description."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from drf_spectacular.settings import spectacular_settings
from drf_spectacular.views import SpectacularSwaggerSplitView

from taskstore import endpoints
from taskstore.endpoints import Endpoint
from taskstore.types.history import Failure, Problems

Tree = dict[str, Any]

REFERENCE = "#/components/schemas/{name}"
TOKEN = "token"  # noqa: S105 - no secret, but the name of the way to send one.
WITH_FIELDS = (400, 413)  # Failures that name fields.
METHODS = ("GET", "POST", "PUT", "DELETE")


@cache
def description() -> Tree:
    """Return the OpenAPI document. Made once, as anyone may ask for it."""
    served = [each for each in endpoints.ENDPOINTS if each is not endpoints.SCHEMA]
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


def _operation(row: Endpoint[..., Any, Any], components: Tree) -> Tree:
    """Return what there is to say of an endpoint; the types that it names are added to `components`."""

    def schema_of(kind: Any) -> Tree:
        (schema,), found = msgspec.json.schema_components([kind], ref_template=REFERENCE)
        components.update({name: each for name, each in found.items() if name not in components})
        return schema

    def answer(description: str, *kinds: Any, media: Sequence[str] = (endpoints.JSON,)) -> Tree:
        in_json, *others = map(schema_of, kinds)
        schema = {"anyOf": [in_json, *others]} if others else in_json
        other = {"type": "string", "format": "binary"} if bytes in kinds else {"type": "string"}
        content = {each: {"schema": schema if each == endpoints.JSON else other} for each in media}
        return {"description": description, "content": content}

    operation: Tree = {"operationId": row.name, "description": row.says, "tags": [row.path.split("/")[1]]}
    asked = asked_schema(row.kind, components)
    if beside := row.in_path + row.in_query:
        operation["parameters"] = [_parameter(row, name, asked["properties"][name]) for name in beside]
    if row.lines:
        asked_schema(row.lines, components)
        reference = {"$ref": REFERENCE.format(name=row.lines.__name__)}
        operation["requestBody"] = {"content": {endpoints.NDJSON: {"schema": reference}}, "required": True}
    elif row.in_body:
        needed = [name for name in asked["required"] if name in row.in_body]
        body = {**asked, "properties": {name: asked["properties"][name] for name in row.in_body}, "required": needed}
        components[row.kind.__name__] = body
        reference = {"$ref": REFERENCE.format(name=row.kind.__name__)}
        operation["requestBody"] = {
            "content": {endpoints.JSON: {"schema": reference}},
            **({"required": True} if needed else {}),
        }
    if row.needs:
        operation["security"] = [{TOKEN: []}, *([{}] if row.is_local else [])]
    operation["responses"] = {
        str(row.status): answer("", *filter(None, [row.answer, row.or_answer]), media=row.media),
        **{
            str(status): answer(why, Problems if status in WITH_FIELDS else Failure)
            for status, why in sorted(row.every_failure.items())
        },
    }
    return operation


def asked_schema(kind: type, components: Tree) -> Tree:
    """Return the schema of a request, in which null only counts as absent, and keep those of its parts."""
    _, found = msgspec.json.schema_components([kind], ref_template=REFERENCE)
    asked: Tree = without_null(found.pop(kind.__name__))
    components.update({name: without_null(each) for name, each in found.items()})
    return asked


def without_null(schema: Any) -> Any:
    match schema:
        case {"anyOf": [inner, {"type": "null"}], **more}:
            return without_null({**inner, **{name: each for name, each in more.items() if name != "default"}})
        case dict():
            return {name: without_null(each) for name, each in schema.items() if name != "pattern"}
        case list():
            return [without_null(each) for each in schema]
    return schema


def _parameter(row: Endpoint[..., Any, Any], name: str, schema: Tree) -> Tree:
    is_in_path = name in row.in_path
    said = {"description": schema["description"]} if "description" in schema else {}
    if is_in_path and schema.get("type") == "array":  # In a path its items are separated by commas.
        schema = {"type": "string", "pattern": "^-?[0-9]{1,19}(,-?[0-9]{1,19})*$"}
    schema = {key: value for key, value in schema.items() if key != "description"}
    return {
        "in": "path" if is_in_path else "query",
        "name": name,
        "schema": schema,
        **said,
        **({"required": True} if is_in_path else {}),
    }


class SchemaPage(SpectacularSwaggerSplitView):
    """Its script is an address of its own, because no page may hold one."""

    authentication_classes = ()
    permission_classes = ()
    schema = None  # It is for people.
    url_name = "rest_api:schema"
    template_name = "tasks_app/schema.html"
