"""How many groups there may be: all of them, and those that a token may touch."""

import pytest
from grpc import StatusCode

from tasks_app.core.operations import EVERY_GROUP, Commit, GroupScope, TaskRecord, Update
from tasks_app.database import new_groups
from tasks_app.grpc_api.statuses import status_of
from tasks_app.models import Task
from tasks_app.reading.counts import group_counts
from tasks_app.writer import totals
from taskstore.errors import TooManyGroups
from taskstore.types.tasks import NewTask

pytestmark = pytest.mark.django_db

ANN = 1


@pytest.fixture(autouse=True)
def few_groups(settings, monkeypatch):
    settings.TASKSTORE_MAX_GROUPS, settings.TASKSTORE_MAX_TOKEN_GROUPS = 3, 2
    monkeypatch.setattr(new_groups, "LEAST_REST_S", 0.0)
    monkeypatch.setattr(new_groups, "REST_PER_COUNT", 0.0)
    forget()


def forget() -> None:
    """What a process that starts does not know."""
    new_groups.memories.clear()


def add(*groups: str, scope: GroupScope = EVERY_GROUP) -> list[TaskRecord]:
    operation = Commit(owner=ANN, adds=tuple(NewTask(group=group) for group in groups), scope=scope)
    return Task.objects.perform(operation)


def test_a_group_too_many_is_refused_by_the_name_of_its_field():
    add("a", "b", "c")
    with pytest.raises(TooManyGroups) as refused:
        add("a", "d")
    assert refused.value.fields == {
        "adds[1].group": [
            "must be an existing group: the store has 3 of at most 3 groups (TASKSTORE_MAX_GROUPS). "
            "A group ends with its last task."
        ]
    }
    assert list(group_counts()) == ["a", "b", "c"]


@pytest.mark.parametrize("is_folded", [True, False])
def test_a_server_that_starts_counts_what_there_is(is_folded):
    add("a", "b", "c")
    if is_folded:
        totals.fold_here()
    forget()
    with pytest.raises(TooManyGroups):
        add("d")


def test_what_is_refused_counts_nothing():
    with pytest.raises(TooManyGroups):
        add("a", "b", "c", "d")
    add("a", "b", "c")


def test_a_token_is_bound_by_the_groups_that_its_list_allows():
    pay = GroupScope(("pay/*", "mail"))
    add("pay/a", "pay/b", scope=pay)
    with pytest.raises(TooManyGroups) as refused:
        add("mail", scope=pay)
    assert "this token's list covers 2 of at most 2 groups (TASKSTORE_MAX_TOKEN_GROUPS)" in str(refused.value)
    add("reports")
    add("pay/a", scope=pay)


def test_through_grpc_a_resource_is_exhausted():
    add("a", "b", "c")
    with pytest.raises(TooManyGroups) as refused:
        Task.objects.perform(Update(adds=(NewTask(group="d"),)))
    assert list(refused.value.fields) == ["created[0].group"]
    status = status_of(refused.value)
    assert status
    assert status.code == StatusCode.RESOURCE_EXHAUSTED.value[0]
