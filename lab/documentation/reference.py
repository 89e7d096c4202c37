"""Pages that are made from the product: of its OpenAPI description, its gRPC definition and its errors."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

from grpc import StatusCode

from tasks_app.grpc_api.statuses import status_of
from tasks_app.rest_api.errors import answer_to
from tasks_app.rest_api.schema import description
from taskstore import errors
from taskstore.errors import CommitRefused, InvalidInput, TaskStoreError
from taskstore.types.tasks import Refusal

from .grpc_reference import grpc_page
from .tables import MADE, sentence, table

REST_BEGINS = """\
The paths in their order, with what each takes and answers. The same stands in `/schema` of a server, for programs,
and under `/schema/ui`, to try it. A request carries `Authorization: Bearer TOKEN`; a path without 401 among its answers
needs none. Members that are `null` count as absent, and unknown ones are refused by name.
"""
ERRORS_BEGIN = """\
Each error has a code, which stays the same from version to version. Over REST it is `code` in the answer where there
is one, beside `detail`, a sentence for people; over gRPC it is the `reason` of the `ErrorInfo` among the details. In
Python it is the class, in `taskstore` for programs that ask a server, in `taskstore.errors` beside the store.
"""
WHOLE_64_BITS = (-(2**63), 2**63 - 1)
# What errors are made of that take more than a text.
EXAMPLES: dict[type[TaskStoreError], list[Any]] = {
    InvalidInput: [{"group": ["must not be empty"]}],
    CommitRefused: [Refusal(deletes=(1,)), Refusal(depends=(1,))],
}

GRPC_CODES = {code.value[0]: code for code in StatusCode}

Schema = dict[str, Any]


def pages() -> dict[str, str]:
    """The text of each page, by its name in docs/."""
    return {"rest.md": rest_page(description()), "grpc-messages.md": grpc_page(), "errors.md": errors_page()}


def rest_page(api: Schema) -> str:
    operations = [
        section(method, path, operation, api)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    ]
    types = [type_section(name, schema) for name, schema in sorted(api["components"]["schemas"].items())]
    return "\n".join(["# The REST API", "", MADE, REST_BEGINS, "## Paths", "", *operations, "## Types", "", *types])


def section(method: str, path: str, operation: Schema, api: Schema) -> str:
    parts = [f"### {method.upper()} {path}", sentence(operation.get("description", ""))]
    if parameters := operation.get("parameters"):
        parts.append(table("| parameter | is | says |", map(parameter_row, parameters)))
    for content in operation.get("requestBody", {}).get("content", {}).values():
        parts.append(f"Body: {type_of(content.get('schema', {}))}")
    parts.append(table("| status | answer | says |", answer_rows(operation["responses"], api)))
    return "\n\n".join(filter(None, parts)) + "\n"


def parameter_row(parameter: Schema) -> tuple[str, str, str]:
    is_needed = ", needed" if parameter.get("required") else ""
    return f"`{parameter['name']}`", f"{type_of(parameter['schema'])}{is_needed}", parameter.get("description", "")


def answer_rows(responses: Schema, api: Schema) -> Iterator[tuple[str, str, str]]:
    for status, answer in sorted(responses.items()):
        kinds = {name: content.get("schema", {}) for name, content in answer.get("content", {}).items()}
        told = [type_of(schema) if name == "application/json" else f"`{name}`" for name, schema in kinds.items()]
        yield status, ", ".join(dict.fromkeys(told)), answer.get("description", "")


def type_section(name: str, schema: Schema) -> str:
    parts = [f"### {name}", sentence(schema.get("description", ""))]
    if "properties" in schema:
        needed = schema.get("required", [])
        rows = [member_row(name, each, name in needed) for name, each in schema["properties"].items()]
        parts.append(table("| member | is | says |", rows))
    else:
        parts.append(type_of(schema))
    return "\n\n".join(filter(None, parts)) + "\n"


def member_row(name: str, schema: Schema, is_needed: bool) -> tuple[str, str, str]:
    kind = type_of(schema)
    if is_needed:
        kind += ", needed"
    elif "default" in schema and schema["default"] is not None:
        kind += f", else `{json.dumps(schema['default'], ensure_ascii=False)}`"
    return f"`{name}`", kind, schema.get("description", "")


def type_of(schema: Schema) -> str:
    """In words, with a link to a type that has a name."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(map(type_of, schema[several])))
    return KINDS.get(str(schema.get("type")), other_type)(schema)


def other_type(schema: Schema) -> str:
    return str(schema.get("type", "anything"))


def list_type(schema: Schema) -> str:
    return f"list of {type_of(schema.get('items', {}))}"


def object_type(schema: Schema) -> str:
    values = schema.get("additionalProperties")
    return f"object of {type_of(values)}" if isinstance(values, dict) and values else "object"


def whole_number_type(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least, most) == WHOLE_64_BITS:
        return "whole number of 64 bits"
    bounds = [f"from {least}" if least is not None else "", f"to {most}" if most is not None else ""]
    return " ".join(["whole number", *filter(None, bounds)])


KINDS: dict[str, Callable[[Schema], str]] = {
    "array": list_type,
    "object": object_type,
    "integer": whole_number_type,
    "string": lambda schema: "text",
    "boolean": lambda schema: "`true` or `false`",
}


def errors_page() -> str:
    kinds = [kind for _, kind in inspect.getmembers(errors, is_error) if kind is not TaskStoreError]
    rows = [error_row(kind) for kind in sorted(kinds, key=lambda kind: kind.code)]
    head = "| code | class | REST | gRPC | what it means, and what to do |"
    ends = "[The paths](rest.md) say which answers they give.\n"
    return "\n".join(["# Errors", "", MADE, ERRORS_BEGIN, table(head, rows), "", ends])


def is_error(each: object) -> bool:
    return inspect.isclass(each) and issubclass(each, TaskStoreError)


def error_row(kind: type[TaskStoreError]) -> tuple[str, ...]:
    found = examples(kind)
    # Only Django's own ways to write a row raise Immutable, which nothing over the wire uses.
    answers = [answer_to(error, {}) for error in found if kind is not errors.Immutable]
    over_rest = {str(answer.status_code): None for answer in answers if answer is not None}
    over_grpc = {f"`{GRPC_CODES[status.code].name}`": None for status in map(status_of, found) if status is not None}
    told = sentence(inspect.getdoc(kind) or "")
    return f"`{kind.code}`", f"`{kind.__name__}`", ", ".join(over_rest), ", ".join(over_grpc), told


def examples(kind: type[TaskStoreError]) -> list[TaskStoreError]:
    made_of = next((made_of for base, made_of in EXAMPLES.items() if issubclass(kind, base)), [""])
    return [kind(each) for each in made_of]
