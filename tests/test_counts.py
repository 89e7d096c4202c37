"""The numbers of each group."""

import pytest

from tasks_app.core.operations import GroupScope
from tasks_app.models import Task
from tasks_app.reading.counts import Counts, counts_of, group_counts
from taskstore.types.tasks import NewTask

pytestmark = pytest.mark.django_db

ANN = 1
LATER_MS = -60_000


def test_each_task_is_counted_in_its_state():
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * 3 + [NewTask(group="mail", timespec_ms=LATER_MS)])
    Task.objects.claim("mail", owner=ANN)
    assert group_counts() == {"mail": Counts(ready=2, claimed=1, scheduled=1)}


def test_a_lease_that_ran_out_is_counted():
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    Task.objects.claim("mail", owner=ANN, duration_ms=0)
    assert group_counts() == {"mail": Counts(expired=1)}


def test_failed_tasks_are_counted_beside_their_state():
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", error="no such address")])
    assert group_counts() == {"mail": Counts(ready=1, failed=1)}
    assert counts_of("mail").total == 1


@pytest.mark.parametrize("name", ["mail", 'a "quoted" \\ name', "\x01\x7f\n", "\N{PILE OF POO}", "[1, 2]", "100%"])
def test_a_group_may_have_any_name(name):
    Task.objects.commit(owner=ANN, adds=[NewTask(group=name)] * 2)
    assert group_counts() == {name: Counts(ready=2)}
    assert counts_of(name) == Counts(ready=2)
    assert Task.objects.groups() == [name]


def test_groups_are_in_the_order_of_their_code_points():
    names = ["b", "a", "Z", "é", "\N{PILE OF POO}", "\ufb00"]
    Task.objects.commit(owner=ANN, adds=[NewTask(group=name) for name in names])
    assert list(group_counts()) == sorted(names)
    assert Task.objects.groups() == sorted(names)


def test_only_the_groups_of_a_scope_are_counted():
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail"), NewTask(group="mail/a"), NewTask(group="reports")])
    assert list(group_counts(GroupScope(("mail*",)))) == ["mail", "mail/a"]
    assert group_counts(GroupScope(())) == {}


def test_an_empty_store_has_no_groups():
    assert group_counts() == {}
    assert counts_of("mail") == Counts()
