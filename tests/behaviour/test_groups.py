"""Listing groups and the tasks of one."""

import pytest

from taskstore.errors import InvalidInput
from taskstore.types.tasks import Change, NewTask

from .people import ANN, BOB
from .values import with_each


def add(store, *groups):
    return store.commit(owner=ANN, adds=[NewTask(group=group) for group in groups])


def test_a_group_exists_while_a_task_carries_its_name(store):
    assert store.groups() == []
    [mail, _] = add(store, "mail", "reports")
    assert store.groups() == ["mail", "reports"]
    [held] = store.claim("mail", owner=BOB)
    assert store.groups() == ["mail", "reports"]
    store.commit(owner=BOB, deletes=[held.id])
    assert store.groups() == ["reports"]
    assert mail.group == "mail"


def test_groups_are_sorted_by_code_point(store):
    names = ["b", "a", "B", "é", "z", "Ω", "a/b", "a b", "0", "\U0001f4ec", "\uff5e"]
    add(store, *names, *names)
    assert store.groups() == sorted(names)


@with_each(
    "name",
    [
        "a/b",
        "/",
        "a b",
        "100%",
        "%2F",
        "é",
        "a?b",
        "a#b",
        "\t\n",
        "-",
        "..x",
        "\U0001f4ec",
        "'\";",
        "x" * 255,
        "é" * 255,
    ],
)
def test_a_name_may_hold_any_character(store, name):
    [task] = add(store, name)
    assert name in store.groups()
    assert store.group(name) == [task]
    [held] = store.claim(name, owner=BOB)
    assert store.group(name, owned=True) == [held]


def test_names_that_differ_in_case_or_form_are_different_groups(store):
    names = ["mail", "Mail", "MAIL", "mail ", "ma\u0301il", "m\u00e1il"]
    tasks = add(store, *names)
    assert [store.group(name) for name in names] == [[task] for task in tasks]
    assert [task.group for name in names for task in store.claim(name, owner=BOB)] == names


def test_a_group_lists_the_longest_available_first_then_by_id(store, clock):
    times = [clock.now_ms - 5, clock.now_ms - 9, clock.now_ms - 5, 1]
    tasks = store.commit(owner=ANN, adds=[NewTask(group="mail", timespec_ms=time_ms) for time_ms in times])
    assert store.group("mail") == [tasks[place] for place in (3, 1, 0, 2)]


def test_a_group_lists_what_is_available_and_with_owned_all_of_it(store, clock):
    [ready, _] = store.commit(owner=ANN, adds=[NewTask(group="mail", priority=1), NewTask(group="mail", priority=2)])
    [held] = store.claim("mail", owner=BOB, duration_ms=1_000)
    [scheduled] = store.commit(owner=ANN, adds=[NewTask(group="mail", timespec_ms=-2_000)])
    assert store.group("mail") == [ready]
    assert store.group("mail", owned=True) == [ready, held, scheduled]
    clock.advance(1_000)
    assert store.group("mail") == [ready, held]


def test_a_group_that_does_not_exist_is_empty(store):
    assert store.group("mail") == store.group("mail", owned=True) == []


def test_a_listing_can_be_limited(store):
    tasks = add(store, *["mail"] * 5)
    for limit, count in [(None, 5), (0, 5), (1, 1), (4, 4), (5, 5), (6, 5)]:
        assert store.group("mail", limit=limit) == tasks[:count]


def test_a_negative_limit_is_bad_input(store):
    with pytest.raises(InvalidInput) as error:
        store.group("mail", limit=-1)
    assert list(error.value.fields) == ["limit"]


@with_each("name", ["a\0b", "x" * 256])
def test_a_name_that_no_group_can_have_is_bad_input(store, name):
    with pytest.raises(InvalidInput) as error:
        store.group(name)
    assert list(error.value.fields) == ["name"]


def test_a_listing_shows_tasks_whole(store):
    add_it = NewTask(
        group="mail", data=b"1\0\xff", data_type="example/Letter", error="torn", labels={"a": "é"}, priority=3
    )
    [task] = store.commit(owner=ANN, adds=[add_it])
    assert store.group("mail") == store.find([task.id]) == [task]


def test_an_update_stays_in_its_group(store):
    [task] = add(store, "mail")
    [successor] = store.commit(owner=ANN, updates=[Change(id=task.id)])
    assert store.group("mail") == [successor]
