"""Times of protobuf as milliseconds."""

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tasks_app.grpc_api.requests import duration_in, path_on_the_wire, time_in
from tasks_app.grpc_api.statuses import time_of
from taskstore.types.scalars import LATEST_MS

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("seconds", "nanos", "ms"),
    [
        (1, 0, 1_000),
        (1, 1, 1_001),
        (1, 999_999, 1_001),
        (1, 1_000_000, 1_001),
        (1, 999_999_999, 2_000),
        (253_402_300_799, 999_999_999, LATEST_MS),
        (0, 0, 1),
        (-62_135_596_800, 0, 1),
    ],
)
def test_a_time_is_rounded_up(seconds, nanos, ms):
    assert time_in(Timestamp(seconds=seconds, nanos=nanos), "now") == ms


@pytest.mark.parametrize(
    ("seconds", "nanos", "ms"), [(1, 1, 1_001), (0, 1, 1), (0, 0, 0), (-1, -1, -1_000), (0, -1, 0), (60, 0, 60_000)]
)
def test_a_duration_is_rounded_up(seconds, nanos, ms):
    assert duration_in(Duration(seconds=seconds, nanos=nanos), "own_for") == ms


@pytest.mark.parametrize("ms", [0, 1, 999, 1_000, 1_234_567, LATEST_MS])
def test_a_time_comes_back_to_the_millisecond(ms):
    assert time_of(ms).ToMilliseconds() == ms


@pytest.mark.parametrize(
    ("path", "wire"),
    [
        ("adds[3].timespec", "created[3].not_before"),
        ("adds[0].labels.data", "created[0].labels.data"),
        ("depends[2]", "predicates[2]"),
        ("updates[0].error", "prototype.error"),
        ("deleted[1].id", "deleted[1].id"),
        ("duration", "own_for"),
        ("", "request"),
    ],
)
def test_a_path_is_the_one_in_the_request(path, wire):
    assert path_on_the_wire(path) == wire
