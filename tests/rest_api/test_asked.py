"""The types of requests."""

import gc

import pytest

from taskstore.types.requests import (
    Add,
    Asked,
    ClaimRequest,
    ClientRequest,
    ReasonByGroup,
    TasksRequest,
    Update,
    UpdateRequest,
)

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "asked", [UpdateRequest, Add, Update, ClaimRequest, TasksRequest, ReasonByGroup, ClientRequest]
)
def test_a_type_is_worked_out_before_two_requests_can_meet_in_it(asked):
    assert is_worked_out(asked)
    assert not is_worked_out(Asked)  # Which is never decoded: the test can tell the difference.


def is_worked_out(asked):
    return any(type(held).__name__ == "StructInfo" for held in gc.get_referents(asked))
