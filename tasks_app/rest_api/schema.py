"""The OpenAPI description."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from drf_spectacular.drainage import set_override
from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore.types.server import Failure, Problems
from taskstore.types.tasks import Task

from ..core.validation import GROUP_LENGTH
from ..wire.tasks import Asked
from .base import OpenView

EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])

REFERENCE = "#/components/schemas/{name}"

NAMES = {"type": "array", "items": {"type": "string"}}
TASKS = {"type": "array", "items": {"$ref": REFERENCE.format(name=Task.__name__)}}
TASKS_OR_NULL = {
    "type": "array",
    "items": {"oneOf": [{"$ref": REFERENCE.format(name=Task.__name__)}, {"type": "null"}]},
}

ID = {"type": "integer", "format": "int64"}
IDS = {"type": "string", "pattern": "^-?[0-9]{1,19}(,-?[0-9]{1,19})*$"}
LIMIT = {"type": "integer", "format": "int64", "minimum": 0, "default": 0}
NAME = {"type": "string", "maxLength": GROUP_LENGTH}
TEXTS = {"type": "array", "items": {"type": "string"}}
FLAG = {"type": "string", "enum": ["0", "1", "no", "yes", "false", "true"], "default": "no"}

BAD = OpenApiResponse(Problems, "The request is not what is written here; `errors` names every wrong field.")
FAILURES = {
    400: BAD,
    401: OpenApiResponse(Failure, "There is no valid token."),
    403: OpenApiResponse(Failure, "The token does not allow this, or not in this group."),
    413: OpenApiResponse(Problems, "More than the store takes at once; the limit is named."),
    429: OpenApiResponse(
        Failure, "Too many requests, or too many wrong tokens: try again after `Retry-After` seconds."
    ),
    503: OpenApiResponse(
        Failure,
        "The store can't answer now: try again after `Retry-After` seconds. With the code "
        "`commit_unknown` it may have happened: look before trying again.",
    ),
}
KEY_REUSED = {409: OpenApiResponse(Failure, "The idempotency key came before with another request.")}
NOT_THERE = {404: OpenApiResponse(Failure, "There is none. For an id that existed: what became of it.")}


def path(name: str, schema: Mapping[str, Any], description: str = "") -> OpenApiParameter:
    return OpenApiParameter(name, dict(schema), OpenApiParameter.PATH, description=description)


def query(name: str, schema: Mapping[str, Any], description: str = "") -> OpenApiParameter:
    return OpenApiParameter(name, dict(schema), OpenApiParameter.QUERY, description=description)


def endpoint(
    operation_id: str,
    *,
    answer: type[msgspec.Struct] | Mapping[str, Any],
    body: type[Asked] | None = None,
    body_kind: str = "application/json",
    kinds: Sequence[str] = (),
    parameters: Sequence[OpenApiParameter] = (),
    failures: Mapping[int, OpenApiResponse] = FAILURES,
    files: Iterable[str] = (),
    status: int = 200,
) -> Callable[[EndpointT], EndpointT]:
    """Describe the method of a view. Its sentences are the view's docstring.

    `body_kind` and `kinds`: the media types of a body and of an answer that are not JSON; `files`: those
    of answers beside it; `status`: of what went well.
    """
    answers: Mapping[Any, Any] = {(status, kind): answer for kind in kinds} or {status: answer}
    texts = {(status, each.partition(";")[0]): OpenApiTypes.STR for each in files}
    return extend_schema(
        operation_id=operation_id,
        request={body_kind: body} if body else None,
        parameters=list(parameters),
        responses={**answers, **texts, **failures},
    )


class Types(OpenApiSerializerExtension):
    """Makes the types of `asked` and `answers` known to drf-spectacular, which knows serializers only."""

    target_class = msgspec.Struct
    match_subclasses = True

    def get_name(self, auto_schema: AutoSchema, direction: str) -> str:
        # Parts of others are known by their names only, which would be taken for another type.
        set_override(self._type, "suppress_collision_warning", True)
        return self._type.__name__

    def map_serializer(self, auto_schema: AutoSchema, direction: str) -> dict[str, Any]:
        _, schemas = msgspec.json.schema_components([self._type], ref_template=REFERENCE)
        for name, schema in schemas.items():
            component = ResolvedComponent(name=name, type=ResolvedComponent.SCHEMA, object=name, schema=schema)
            if name != self._type.__name__:
                auto_schema.registry.register_on_missing(component)
        return dict(schemas[self._type.__name__])

    @property
    def _type(self) -> type[msgspec.Struct]:
        return self.target if isinstance(self.target, type) else type(self.target)


class BearerToken(OpenApiAuthenticationExtension):
    target_class = "tasks_app.rest_api.authentication.TokenAuthentication"
    match_subclasses = True
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


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
