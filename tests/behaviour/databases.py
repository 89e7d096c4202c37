"""What is true of one of the two databases only."""

import pytest
from django.db import connection

only_postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="a matter of PostgreSQL")
only_sqlite = pytest.mark.skipif(connection.vendor != "sqlite", reason="a matter of SQLite")


def on_the_server(sql):
    with connection._nodb_cursor() as cursor:
        cursor.execute(sql)
