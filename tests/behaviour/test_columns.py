"""The columns of a task have the types that its list of fields says."""

import pytest
from django.db import connection

from taskstore.types.tasks import FIELDS

ON_POSTGRESQL = (
    "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
    " WHERE attrelid = 'tasks_app_task'::regclass AND attnum > 0 AND NOT attisdropped"
)
ON_SQLITE = "SELECT name, type FROM pragma_table_info('tasks_app_task')"
SAME = {"varchar": "text", "character varying": "text", "blob": "bytea"}


@pytest.mark.django_db
def test_every_column_has_its_type():
    is_postgresql = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        cursor.execute(ON_POSTGRESQL if is_postgresql else ON_SQLITE)
        found = {name: kind.partition("(")[0].lower() for name, kind in cursor.fetchall()}
    types = {} if is_postgresql else {"jsonb": "text"}  # On SQLite JSON is text.
    if not is_postgresql:
        assert found.pop("id") == "integer"  # With this type it is the number of the row itself.
        found["id"] = "bigint"
    assert {name: SAME.get(kind, kind) for name, kind in found.items()} == {
        field.name: types.get(field.column, field.column) for field in FIELDS
    }
