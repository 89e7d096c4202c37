"""Batches over REST and by the clients."""

import asyncio

import pytest

from tasks_app.models import Batch, Task
from taskstore import AsyncClient, Client, InvalidInput, NewTask, Plan
from taskstore.errors import CommitRefused
from tests.rest_api.api import Api


@pytest.fixture
def store(served):
    with Client(served.url, token=Api("operate").secret) as client:
        yield client


def end_all(store, group):
    while tasks := store.claim(group, limit=1_000):
        store.delete(*tasks)


def test_a_batch_is_made_listed_and_read(store):
    made = store.batches.create("import 42", [NewTask(group="mail"), NewTask(group="mail")], then=NewTask(group="sum"))
    assert (made.batch.name, made.batch.total, made.batch.state) == ("import 42", 2, "open")
    assert [task.batch for task in made.tasks] == [made.batch.id] * 2
    held = store.batches.create(hold=True).batch
    assert [batch.id for batch in store.batches.list().batches] == [held.id, made.batch.id]
    page = store.batches.list(limit=1)
    assert [batch.id for batch in store.batches.list(limit=1, after=int(page.after)).batches] == [made.batch.id]
    end_all(store, "mail")
    [task] = store.claim("sum")
    assert task.labels == {"after_batch": str(made.batch.id)}
    closed = store.batches.get(made.batch.id)
    assert (closed.state, closed.ended) == ("succeeded", 2)
    assert [batch.id for batch in store.batches.list(open=True).batches] == [held.id]
    assert [batch.id for batch in store.batches.list(open=False).batches] == [made.batch.id]
    assert store.batches.release(held.id).state == "succeeded"
    assert store.batches.get(99) is store.batches.release(99) is store.batches.delete(99) is None


def test_a_block_collects_tasks(store):
    with store.batch("import", then=NewTask(group="sum")) as batch:
        batch.add("mail", "one", priority=3)
        batch.add(NewTask(group="mail", data=b"two"))
        assert batch.id == 0
    assert [(task.text, task.priority, task.batch) for task in batch.tasks] == [
        ("one", 3, batch.id),
        ("two", 0, batch.id),
    ]
    end_all(store, "mail")
    assert len(store.claim("sum")) == 1


def test_many_are_added_in_portions_to_a_batch_that_is_held_meanwhile(store, monkeypatch):
    monkeypatch.setattr("taskstore.client.batches.AT_ONCE", 10)
    with store.batch(then=NewTask(group="sum")) as batch:
        for _ in range(25):
            batch.add("mail")
            end_all(store, "mail")
        assert store.batches.get(batch.id).state == "held"
    assert len(batch.tasks) == 25
    end_all(store, "mail")
    assert (len(store.claim("sum")), store.batches.get(batch.id).total) == (1, 25)


def test_what_is_raised_in_a_block_adds_nothing(store):
    def break_off():
        with store.batch() as batch:
            batch.add("mail")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert (store.groups(), store.batches.list().batches) == ([], ())


def test_an_async_client_does_the_same(served):
    secret = Api().secret

    async def story():
        async with AsyncClient(served.url, token=secret) as store:
            async with store.batch("import", then=NewTask(group="sum")) as batch:
                await batch.add("mail")
            return await store.batches.get(batch.id)

    assert asyncio.run(story()).total == 1


def test_a_repeated_request_makes_one_batch(store):
    first, again = [store.batches.create("a", [NewTask(group="mail")], key="import-42") for _ in range(2)]
    empty, empty_again = [store.batches.create("b", hold=True, key="import-43") for _ in range(2)]
    assert (first.batch.id, empty.batch.id) == (again.batch.id, empty_again.batch.id)
    assert (Batch.objects.count(), Task.objects.count()) == (2, 1)


def test_a_batch_is_deleted_and_comes_back(store):
    made = store.batches.create("wrong", [NewTask(group="mail")] * 3, then=NewTask(group="sum"))
    [claimed] = store.claim("mail")
    operation = store.batches.delete(made.batch.id, reason="the wrong file")
    assert (operation.state, operation.done, store.groups()) == ("done", 3, [])
    assert store.batches.get(made.batch.id).state == "deleted"
    with pytest.raises(CommitRefused, match="is deleted, and takes no more tasks"):
        store.add("mail", batch=made.batch.id)
    with pytest.raises(CommitRefused):
        store.delete(claimed)
    store.undo_operation(operation.id)
    again = store.batches.get(made.batch.id)
    assert (again.state, again.open, again.ended) == ("open", 3, 0)
    end_all(store, "mail")
    assert len(store.claim("sum")) == 1


def test_what_is_wrong_is_named(store):
    with pytest.raises(InvalidInput) as refused:
        store.batches.create("a", [NewTask(group="mail")], then=Plan((), then=Plan((NewTask(group="a"),) * 1_001)))
    assert refused.value.fields == {"then": ["must have at most 1000 tasks, not 1001"]}
    with pytest.raises(CommitRefused, match="parent: batch 99 does not exist"):
        store.batches.create(parent=99)


def test_a_token_for_some_groups_sees_only_their_batches(served):
    with Client(served.url, token=Api("operate").secret) as all_of_them:
        mixed = all_of_them.batches.create("m", [NewTask(group="mail")], then=NewTask(group="secret")).batch
        plain = all_of_them.batches.create("p", [NewTask(group="mail")]).batch
    with Client(served.url, token=Api(groups=("mail",)).secret) as some:
        assert [batch.id for batch in some.batches.list().batches] == [plain.id]
        assert some.batches.get(mixed.id) is None
        with pytest.raises(CommitRefused, match=f"batch {mixed.id} does not exist"):
            some.add("mail", batch=mixed.id)
        with pytest.raises(Exception, match="no access to the group"):
            some.batches.create("x", then=NewTask(group="secret"))
