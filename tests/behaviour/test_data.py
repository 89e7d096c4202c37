"""What goes in comes out again, byte for byte."""

import pytest
from django.db import DatabaseError, connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks_app.database.rows import PAYLOAD_BYTES
from tasks_app.models import KeptPayload, Payload, Task
from taskstore.types.tasks import FIELDS, Change, NewTask

from ..examples import examples
from .people import ANN, BOB
from .values import with_each

# What both databases take as text: no NUL, no lone surrogates.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)


@with_each(
    "data",
    [
        b"",
        b"\0",
        b"a\0b\0",
        b"\xff\xfe",
        b"\xc3\x28",
        "é\u202e\U0001f4ec".encode(),
        bytes(range(256)),
        b"\\x00",
        b"null",
        b'"',
    ],
)
def test_data_is_any_bytes(store, data):
    [added] = store.commit(owner=ANN, adds=[NewTask(group="mail", data=data)])
    [claimed] = store.claim("mail", owner=BOB)
    [changed] = store.commit(owner=BOB, updates=[Change(id=claimed.id, data=data + data)])
    assert (added.data, claimed.data, changed.data) == (data, data, data + data)
    assert store.find([changed.id]) == store.group("mail") == [changed]
    store.commit(owner=BOB, deletes=[changed.id])


def test_data_may_be_large(store):
    data = bytes(range(256)) * 4_096 * 10
    [added] = store.commit(owner=ANN, adds=[NewTask(group="mail", data=data)])
    [claimed] = store.claim("mail", owner=BOB)
    assert added.data == claimed.data == store.find([claimed.id])[0].data == data


# The store is emptied after all examples, not after each: they do not see each other.
@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    group=TEXT.filter(bool),
    data=st.binary(max_size=100),
    data_type=TEXT,
    error=TEXT,
    labels=st.dictionaries(TEXT, TEXT, max_size=3),
    priority=st.integers(-100, 100),
)
def test_every_task_that_is_taken_is_kept(store, **fields):
    [added] = store.commit(owner=ANN, adds=[NewTask(**fields)])
    assert {name: getattr(added, name) for name in fields} == fields
    assert store.find([added.id]) == [added]
    assert added in store.group(fields["group"])
    assert fields["group"] in store.groups()


# ---- The columns of a task have the types that its list of fields says


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


# ---- Data that is large: written once, whatever becomes of the task, and gone with it


LARGE = b"to be or not to be\n" * (PAYLOAD_BYTES // 19 + 1)
SMALL = LARGE[: PAYLOAD_BYTES - 1]


def kept():
    """The numbers of the payloads that are kept for a living task."""
    gone = KeptPayload.objects.filter(gone=1).values("id")
    return list(Payload.objects.exclude(id__in=gone).order_by("id").values_list("id", flat=True))


def added(store, data=LARGE):
    [task] = store.commit(owner=ANN, adds=[NewTask(group="mail", data=data)])
    return task


def test_successors_share_large_data(store):
    first = added(store)
    [claimed] = store.claim("mail", owner=BOB)
    [renewed] = store.commit(owner=BOB, updates=[Change(id=claimed.id, timespec_ms=-60_000)])
    assert [task.data for task in (first, claimed, renewed)] == [LARGE] * 3
    assert kept() == [first.id]
    assert store.find([renewed.id]) == [renewed]
    assert store.group("mail", owned=True) == [renewed]


def test_the_database_refuses_to_change_it(transactional_db):
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=LARGE)])
    with pytest.raises(DatabaseError, match="immutable"), connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_payload SET id = id + 1")
    assert len(kept()) == 1
