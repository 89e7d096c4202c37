"""Listing groups and the tasks of one."""

import pytest

from taskstore.errors import InvalidInput
from taskstore.types.tasks import NewTask

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


def test_a_negative_limit_is_bad_input(store):
    with pytest.raises(InvalidInput) as error:
        store.group("mail", limit=-1)
    assert list(error.value.fields) == ["limit"]


@with_each("name", ["a\0b", "x" * 256])
def test_a_name_that_no_group_can_have_is_bad_input(store, name):
    with pytest.raises(InvalidInput) as error:
        store.group(name)
    assert list(error.value.fields) == ["name"]
