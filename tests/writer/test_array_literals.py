"""Arrays as PostgreSQL reads them in text."""

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks_app.database.postgresql_arrays import literal
from tests.behaviour.databases import only_postgresql
from tests.examples import examples

pytestmark = [only_postgresql, pytest.mark.django_db]

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.sampled_from(
    ["", "NULL", "null", "\\", '"', "{}", "a,b", " a ", "\\x00", "'", "E'\\n'", "%s", "é\u2028"]
)
OF_TYPE = {
    "text": TEXTS,
    "bytea": st.binary(max_size=20),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
}


@pytest.mark.parametrize("type_name", OF_TYPE)
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_they_come_back_as_they_were(type_name, data):
    values = data.draw(st.lists(st.none() | OF_TYPE[type_name], max_size=5))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT %s::{type_name}[]", [literal(type_name, values)])
        [[found]] = cursor.fetchall()
    assert [bytes(each) if isinstance(each, memoryview) else each for each in found] == values
