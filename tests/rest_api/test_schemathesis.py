"""Requests made from the description, right and wrong ones: what comes back has to be as described, and no failure."""

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from django.db import connection
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from tasks_app.access.policy import ANYTHING

from ..examples import examples
from .api import Api

schemathesis.serializer.alias("application/x-ndjson", "application/json")  # A line of it.

# The application closes its connection after each request, which ends a transaction of the test.
pytestmark = pytest.mark.usefixtures("transactional_db")

schema = schemathesis.openapi.from_wsgi("/schema", get_wsgi_application(), headers={"Host": "localhost"})
schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
# All of it on PostgreSQL, which refuses more values than SQLite does: there, each field with each of its boundaries.
IS_WHOLE = connection.vendor == "postgresql"
schema.config.phases.coverage.enabled = IS_WHOLE


@pytest.fixture
def secret(transactional_db, settings):
    settings.TASKSTORE_COMMANDS = True
    api = Api(ANYTHING)
    api.committed(adds=[{"group": "mail"}, {"group": "0"}] * 3)
    return api.secret


@schema.parametrize()
@settings(max_examples=examples(6 if IS_WHOLE else 3), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_request_finds_a_failure_of_the_server_or_of_its_description(case, secret):
    headers = {"Host": "localhost", "Authorization": f"Bearer {secret}"}
    case.call_and_validate(headers=headers, checks=[not_a_server_error, response_schema_conformance])
