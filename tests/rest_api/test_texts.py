"""Every text of every endpoint as a lone surrogate, and every key of a search without a value: never a 500."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from msgspec import inspect

from tasks_app.models import Scope, Task
from tasks_app.reading.search.grammar import Key
from taskstore.endpoints import ENDPOINTS, Endpoint
from taskstore.types.scalars import Action
from taskstore.types.tasks import NewTask
from tests.console.commands import running_list

from .api import Api

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("commands_are_on")]

LONE = "\ud800"
MOST_DEPTH = 4  # Of objects within objects: plans are within plans without end.


def example_of(type_: inspect.Type, depth: int = 0) -> Any:
    """Return a value of this type with all its fields, as JSON has it."""
    match type_:
        case inspect.Metadata(type=inner):
            return example_of(inner, depth)
        case inspect.UnionType(types=types):
            return example_of(next(each for each in types if not isinstance(each, inspect.NoneType)), depth)
        case inspect.StructType(fields=fields):
            return {field.encode_name: example_of(field.type, depth + 1) for field in fields}
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return [example_of(item, depth)] if depth < MOST_DEPTH else []
        case inspect.DictType():
            return {"a": example_of(type_.value_type, depth)}
        case inspect.IntType(ge=least):
            return max(least or 1, 1)
        case inspect.FloatType():
            return 0.5
        case inspect.BoolType():
            return False
        case inspect.EnumType(cls=kind):
            return next(iter(kind)).value
        case inspect.BytesType():
            return ""
        case inspect.StrType():
            return "a"
    return {"a": ["a"]}  # Any JSON.


def least_of(type_: inspect.Type) -> Any:
    """Return a value of this type with no fields but those that are required."""
    match type_:
        case inspect.Metadata(type=inner):
            return least_of(inner)
        case inspect.StructType(fields=fields):
            return {field.encode_name: least_of(field.type) for field in fields if field.required}
    return example_of(type_)


def with_one_surrogate(type_: inspect.Type, depth: int = 0) -> Iterator[Any]:
    """Yield a value for each text of the type, that has the surrogate and nothing else that is not required."""
    match type_:
        case inspect.Metadata(type=inner):
            yield from with_one_surrogate(inner, depth)
        case inspect.UnionType(types=types):
            for each in types:
                yield from with_one_surrogate(each, depth)
        case inspect.StructType(fields=fields) if depth < MOST_DEPTH:
            for field in fields:
                for value in with_one_surrogate(field.type, depth + 1):
                    yield {**least_of(type_), field.encode_name: value}
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            yield from ([value] for value in with_one_surrogate(item, depth))
        case inspect.DictType():
            yield from ({"a": value} for value in with_one_surrogate(type_.value_type, depth))
            yield {LONE: least_of(type_.value_type)}
        case inspect.StrType():
            yield LONE


def with_surrogates(value: Any) -> Iterator[Any]:
    """Yield the value once for each text and each name in it, with that replaced."""
    match value:
        case str():
            yield LONE
        case list():
            for place, part in enumerate(value):
                yield from ([*value[:place], each, *value[place + 1 :]] for each in with_surrogates(part))
        case dict():
            for name, part in value.items():
                yield from ({**value, name: each} for each in with_surrogates(part))
                yield {**value, LONE: part}


@pytest.fixture
def apis():
    """What each request may ask, in a store that holds something of each kind."""
    running_list("1_0", project="a")
    Task.objects.commit(owner=1, adds=[NewTask(group="a", data=b"{}", error="a")])
    Task.objects.create_batch(owner=1, hold=True)
    return {Action.COMMANDS: Api(Scope.COMMANDS), None: Api(Scope.OPERATE)}


BY_NAME = {row.name: row for row in ENDPOINTS}


def answer_to(api: Api, row: Endpoint[..., Any, Any], members: dict[str, Any]) -> int:
    def quoted(name: str) -> str:
        value = members.pop(name, "a")
        return quote(str(value[0] if isinstance(value, list) else value), errors="surrogatepass")

    path = row.path.format(**{name: quoted(name) for name in row.in_path})
    pairs = [f"{name}={quoted(name)}" for name in row.in_query if name in members]
    body = json.dumps(members) if row.method in ("POST", "PUT") else ""
    answer = api.http.generic(row.method, path + (f"?{'&'.join(pairs)}" if pairs else ""), body, "application/json")
    return int(answer.status_code)


@pytest.mark.parametrize("name", BY_NAME)
def test_no_text_of_a_request_is_a_defect(apis, name):
    row = BY_NAME[name]
    api = apis.get(row.needs, apis[None])
    example = example_of(inspect.type_info(row.kind))
    example |= {"wait": 0} if "wait" in example else {}
    for members in [example, *with_surrogates(example), *with_one_surrogate(inspect.type_info(row.kind))]:
        assert answer_to(api, row, dict(members)) < 500, members


@pytest.mark.parametrize("key", Key)
def test_a_search_key_without_a_value_is_no_defect(apis, key):
    for text in (f"{key}:", f"-{key}:", f'{key}:""', f"{key}: a", f"{key}:*", f"{key}.:", f"{key}:{LONE}"):
        for path in ("/search", "/export"):
            answer = apis[None].http.get(f"{path}?q={quote(text, errors='surrogatepass')}")
            assert answer.status_code < 500, text
