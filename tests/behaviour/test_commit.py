"""What a commit does with what it adds, updates and deletes."""

from taskstore.types.tasks import Change, NewTask

from .people import ANN, BOB
from .values import with_each
from .ways import Seen


def test_an_added_task_is_as_it_was_given(store, clock):
    [task] = store.commit(
        owner=ANN,
        adds=[
            NewTask(
                group="mail",
                data=b"Dear Bob",
                data_type="example/Letter",
                error="no stamp",
                labels={"to": "Bob", "é": ""},
                priority=-3,
            )
        ],
    )
    assert task == Seen(
        id=task.id,
        group="mail",
        available_at_ms=clock.now_ms,
        owner=ANN,
        data=b"Dear Bob",
        data_type="example/Letter",
        error="no stamp",
        labels={"to": "Bob", "é": ""},
        priority=-3,
        origin=task.id,
        claims=0,
        created_at_ms=clock.now_ms,
        unique="",
    )


def test_it_answers_adds_then_updates_in_the_order_given(store):
    old = store.commit(owner=ANN, adds=[NewTask(group="mail", data=bytes([n])) for n in range(3)])
    new = store.commit(
        owner=ANN,
        adds=[NewTask(group="reports", data=b"x"), NewTask(group="mail", data=b"y")],
        updates=[Change(id=old[2].id, data=b"c"), Change(id=old[0].id, data=b"a")],
        deletes=[old[1].id],
    )
    assert [(task.data, task.origin) for task in new] == [
        (b"x", new[0].id),
        (b"y", new[1].id),
        (b"c", old[2].id),
        (b"a", old[0].id),
    ]
    assert [task.id for task in new] == sorted(task.id for task in new)
    assert store.find([task.id for task in old]) == [None, None, None]


@with_each(
    "named, expected",
    [
        ({}, (b"1\xff", "example/Letter", "torn")),
        ({"timespec_ms": -60_000}, (b"1\xff", "example/Letter", "torn")),
        ({"data": b"2"}, (b"2", "", "torn")),
        ({"data": b"2", "data_type": "example/Card"}, (b"2", "example/Card", "torn")),
        ({"data": b""}, (b"", "", "torn")),
        ({"data_type": "example/Card"}, (b"1\xff", "example/Card", "torn")),
        ({"data_type": ""}, (b"1\xff", "", "torn")),
        ({"error": "lost"}, (b"1\xff", "example/Letter", "lost")),
        ({"error": ""}, (b"1\xff", "example/Letter", "")),
        ({"data": b"", "error": ""}, (b"", "", "")),
    ],
)
def test_data_type_and_error_stay_unless_the_update_names_them(store, named, expected):
    letter = NewTask(group="mail", data=b"1\xff", data_type="example/Letter", error="torn")
    [old] = store.commit(owner=ANN, adds=[letter])
    [new] = store.commit(owner=ANN, updates=[Change(id=old.id, **named)])
    assert (new.data, new.data_type, new.error) == expected
    assert (new.group, new.labels, new.priority, new.origin) == (old.group, old.labels, old.priority, old.origin)


def test_the_new_owner_is_who_commits(store):
    [old] = store.commit(owner=ANN, adds=[NewTask(group="mail")])
    [new] = store.commit(owner=BOB, updates=[Change(id=old.id)])
    assert (old.owner, new.owner) == (ANN, BOB)


def test_release_can_keep_the_data_and_wait(store, clock):
    store.commit(owner=ANN, adds=[NewTask(group="mail", data=b"1", error="torn")])
    [claimed] = store.claim("mail", owner=ANN)
    later = Change(id=claimed.id, release=True, timespec_ms=-5_000)
    [released] = store.commit(owner=ANN, updates=[later])
    assert (released.owner, released.data, released.error) == (0, b"1", "torn")
    assert store.claim("mail", owner=BOB) == []
    clock.advance(5_000)
    assert [task.origin for task in store.claim("mail", owner=BOB)] == [claimed.origin]


def test_a_commit_takes_ten_thousand_changes(store):
    tasks = store.commit(owner=ANN, adds=[NewTask(group="mail", data=b"%d" % n) for n in range(10_000)])
    assert [task.data for task in tasks] == [b"%d" % n for n in range(10_000)]
    assert [task.id for task in tasks] == sorted({task.id for task in tasks})
    assert store.commit(owner=ANN, deletes=[task.id for task in tasks]) == []
    assert store.groups() == []
