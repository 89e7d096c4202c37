"""Whatever is sent, the decoders make a value of it or name what is wrong: nothing else comes out of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.grpc_api import requests
from tasks_app.grpc_api.refs import Refs, refuse_repeated
from tasks_app.grpc_api.requests import duration_in, new_tasks_in, time_in
from tasks_app.wire import strict_json
from tasks_app.wire.strict_json import value_of
from taskstore.errors import InvalidInput
from taskstore.masstasker import masstasker_pb2 as pb
from taskstore.types.bulk import BulkPreviewRequest, BulkRequest
from taskstore.types.jobs import JobRequest, RequeueRequest
from taskstore.types.requests import Add, Asked, ClaimRequest, ClientRequest, ReasonByGroup, TasksRequest, UpdateRequest
from taskstore.types.schedules import ScheduleRequest

pytestmark = pytest.mark.once

REQUESTS: list[type[Asked]] = [
    UpdateRequest,
    ClaimRequest,
    TasksRequest,
    ReasonByGroup,
    ClientRequest,
    BulkPreviewRequest,
    BulkRequest,
    JobRequest,
    RequeueRequest,
    ScheduleRequest,
    Add,
]
INTEGERS = st.integers(-(2**65), 2**65) | st.integers(-2, 2)
TEXTS = st.sampled_from(["", "mail", "a\0b", "\ud800", "x" * 256, "requeue", "all", "@daily", "UTC", "MQ=="]) | st.text(
    st.characters(exclude_categories=[]), max_size=3
)
SCALARS = st.none() | st.booleans() | INTEGERS | TEXTS | st.floats()
# Names of every member of any request: a value is often the right one for some member.
NAMES = sorted({field.encode_name for request in REQUESTS for field in msgspec.structs.fields(request)})
MEMBERS = st.sampled_from([*NAMES, "id", "group", "to", "function", "a\0b"]) | TEXTS


def trees(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(parts, max_size=3) | st.dictionaries(MEMBERS, parts, max_size=4)


VALUES = st.recursive(SCALARS, trees, max_leaves=12)


def wrong_in(read: Callable[[], object]) -> Mapping[str, Any] | None:
    """The fields that are named as wrong; None: a value came of it."""
    try:
        read()
    except InvalidInput as refused:
        return refused.fields
    return None


@pytest.mark.parametrize("request_type", REQUESTS, ids=lambda request: request.__name__)
@given(st.data())
def test_a_tree_becomes_a_request_or_its_wrong_fields_are_named(request_type, data):
    own = [field.encode_name for field in msgspec.structs.fields(request_type)]
    tree = data.draw(st.dictionaries(st.sampled_from(own), VALUES, max_size=6) | VALUES)
    wrong = wrong_in(lambda: value_of(strict_json.read(json.dumps(tree).encode()), request_type))
    assert wrong is None or wrong
    assert all(texts and all(texts) for texts in (wrong or {}).values())


@given(st.binary() | st.text().map(lambda text: f"[{text}]".encode(errors="surrogatepass")))
def test_bytes_are_json_or_refused_as_a_body(body):
    assert list(wrong_in(lambda: strict_json.read(body)) or ["body"]) == ["body"]


@pytest.mark.parametrize(("part", "times"), [(b",", 1), (b"\\n", strict_json.ESCAPES)])
def test_bodies_of_many_values_or_escapes_are_not_decoded_where_others_wait(part, times):
    rest = b" " * strict_json.LIGHT_BYTES
    most, few = strict_json.LIGHT_VALUES, strict_json.HEAVY_VALUES
    assert strict_json.is_light(part * most * times + rest)
    assert not strict_json.is_light(part * (most + 1) * times + rest)
    assert not strict_json.is_heavy(part * few * times + rest)
    assert strict_json.is_heavy(part * (few + 1) * times + rest)


@given(VALUES)
def test_json_is_read_as_it_is_but_for_what_is_null(tree):
    with suppress(InvalidInput):  # About NaN and the infinities.
        assert repr(strict_json.read(json.dumps(tree).encode())) == repr(without_null(tree))


def without_null(tree: Any) -> Any:
    match tree:
        case dict():
            return {name: without_null(value) for name, value in tree.items() if value is not None}
        case list():
            return [without_null(value) for value in tree]
    return tree


TIMES = st.builds(
    lambda seconds, nanos: {"seconds": seconds, "nanos": nanos},
    st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 253_402_300_799, 253_402_300_800, -62_135_596_801]),
    st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 999_999_999, 1_000_000_000, -1]),
)


@given(TIMES)
def test_any_time_and_duration_of_protobuf_is_read_or_named(fields):
    request = pb.QueryRequest(now=fields, own_for=fields)
    assert list(wrong_in(lambda: time_in(request.now, "now")) or ["now"]) == ["now"]
    assert list(wrong_in(lambda: duration_in(request.own_for, "own_for")) or ["own_for"]) == ["own_for"]


PIECES = st.sampled_from(
    [b"\x0a", b"\x12", b"\x1a", b"\x08", b"\x10", b"\x00", b"\x01", b"\x04", b"mail", b"\xff", b"\x80\x80\x01", b"\x22"]
)


@given(st.binary(max_size=60) | st.lists(PIECES, max_size=20).map(b"".join))
def test_any_message_is_read_or_refused(body):
    with suppress(DecodeError, InvalidInput):
        request = pb.UpdateRequest.FromString(body)
        requests.refuse_plain_ids([body])
        refs = Refs.read("deleted", request.deleted)
        refuse_repeated("deleted", request.deleted)
        assert len(refs.ids) <= len(request.deleted)
        assert len(new_tasks_in(request.created)) == len(request.created)
        assert all(isinstance(task_id, int) for task_id in requests.plain_ids(request))
