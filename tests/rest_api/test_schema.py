from typing import Any

import pytest
from django.test import Client

from tasks_app.models import Scope
from taskstore import endpoints
from taskstore.endpoints import ENDPOINTS, SCHEMA, Endpoint, plain

from .api import Api

pytestmark = [pytest.mark.once, pytest.mark.django_db]


@pytest.fixture(scope="module")
def schema():
    return Client().get("/schema").json()


def test_it_describes_every_endpoint(schema):
    described = {(path, method.upper()) for path, methods in schema["paths"].items() for method in methods}
    assert described == {(each.path, each.method) for each in ENDPOINTS if each is not SCHEMA}


def test_it_says_which_fields_an_answer_has(schema, db):
    task = Api().add(data_base64="/w==", data_type="t/T")
    described = schema["components"]["schemas"]["Task"]
    assert described["properties"].keys() == task.keys() | {
        *("progress", "unique", "unique_group", "batch", "duplicate", "ending")
    }
    assert set(described["required"]) == task.keys() - {"data_type", "data_base64"}


def test_it_names_the_types_that_are_read_and_answered_with(schema):
    update = schema["paths"]["/update"]["post"]
    reference = {"$ref": "#/components/schemas/UpdateRequest"}
    assert update["requestBody"]["content"] == {"application/json": {"schema": reference}}
    assert update["responses"].keys() == {"200", "400", "401", "403", "413", "429", "503"}
    assert update["security"] == [{"token": []}]


def test_it_gives_the_bounds_that_hold(schema):
    described = schema["components"]["schemas"]["ClaimRequest"]
    assert (described["properties"]["limit"]["minimum"], described["properties"]["limit"]["maximum"]) == (1, 1_000)
    assert described["required"] == ["clientid"]
    assert described["additionalProperties"] is False


def test_a_search_and_a_filter_are_as_long_as_their_parameters_say():
    api = Api(Scope.OPERATE)
    rows: list[tuple[Endpoint[..., Any, Any], str]] = [(endpoints.SEARCH, "q"), (endpoints.AUDIT, "by")]
    for endpoint, name in rows:
        longest = plain(endpoint.fields[name].type).max_length
        for length, right in ((longest, 200), (longest + 1, 400)):
            status, _ = api.get(f"{endpoint.path}?{name}=group:a{'+' * (length - len('group:a'))}")
            assert status == right


@pytest.mark.browser
@pytest.mark.usefixtures("transactional_db")
def test_its_page_works_under_the_policy_and_asks_with_a_token(live_server, chromium):
    api = Api(Scope.READ)
    chromium.goto(f"{live_server.url}/schema/ui")
    chromium.get_by_role("button", name="Authorize").click()
    chromium.get_by_label("auth-bearer-value").fill(api.secret)
    chromium.get_by_label("Apply credentials").click()
    chromium.get_by_role("button", name="Close").click()
    groups = chromium.locator("#operations-groups-groups")
    groups.click()
    groups.get_by_role("button", name="Try it out").click()
    groups.get_by_role("button", name="Execute").click()
    answer = groups.locator(".live-responses-table tr.response .response-col_status")
    answer.wait_for()
    assert answer.inner_text().startswith("200")
