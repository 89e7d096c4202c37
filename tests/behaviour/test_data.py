"""What goes in comes out again, byte for byte."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskstore.types.tasks import Change, NewTask

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
