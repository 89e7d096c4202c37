"""The table of endpoints: what its rows promise to the server and to both clients."""

import subprocess
import sys
from collections import Counter
from typing import get_args, get_origin

import pytest

from taskstore import endpoints
from taskstore.endpoints import ENDPOINTS
from taskstore.types.commands import CommandRequest
from taskstore.types.requests import ById, ReasonByGroup

pytestmark = pytest.mark.once


def test_a_row_has_a_name_and_a_place_of_its_own():
    names, places = Counter(each.name for each in ENDPOINTS), Counter((each.method, each.path) for each in ENDPOINTS)
    assert {*names.values(), *places.values()} == {1}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=[each.name for each in ENDPOINTS])
def test_a_row_names_the_types_of_its_request_and_of_its_answer(endpoint):
    assert {*endpoint.in_path} <= endpoint.fields.keys()
    for kind in (endpoint.kind, endpoint.answer, endpoint.or_answer):
        named = [each for each in (kind, *get_args(kind)) if isinstance(each, type) and not get_origin(each)]
        assert {each.__module__.rpartition(".")[0] for each in named} <= {"taskstore.types", ""}


def test_values_in_a_path_are_quoted():
    assert endpoints.PAUSE.path_of(ReasonByGroup("pay/é ?#%")) == "/groups/pay/%C3%A9%20%3F%23%25/pause"
    assert endpoints.COMMAND.path_of(CommandRequest("a/b", "1_0")) == "/commands/a%2Fb/command/1_0"
    assert endpoints.OPERATION.path_of(ById(-1)) == "/operations/-1"


def test_the_table_needs_no_django():
    program = "import sys, taskstore.endpoints; sys.exit('django' in sys.modules or 'httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
