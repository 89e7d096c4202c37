"""MassTasker's words for a claim and a commit, on the store itself: what others hold or have just locked."""

from contextlib import nullcontext

import pytest

from tasks_app.core.operations import Claim, Operator, Query, Update
from tasks_app.database.rows import PAYLOAD_BYTES
from tasks_app.models import EndedTask, KeptPayload, Payload, Task
from taskstore.errors import StoreBusy
from taskstore.types.tasks import Change, NewTask

from .databases import only_postgresql
from .people import ANN, BOB
from .rivals import Rival
from .writing import writing

OWNING = Query(groups=("mail",), duration_ms=60_000)
READING = Query(groups=("mail",))


@pytest.fixture(params=[0, 1, 99], ids=["alone", "batch-2", "batch-100"])
def perform(request, transactional_db):
    """The verb in this thread, and through a writer."""
    with writing(request.param) if request.param else nullcontext():
        yield lambda operation: list(map(Task.of, Task.objects.perform(operation)))


def add(*tasks, group="mail"):
    return Task.objects.commit(owner=ANN, adds=[NewTask(**{"group": group, **task}) for task in tasks])


def origins(tasks):
    return [task.origin for task in tasks]


def test_a_query_owns_the_earliest_and_a_reading_one_leaves_it(perform, clock):
    late, early = add({"timespec_ms": clock.now_ms}, {"timespec_ms": clock.now_ms - 1, "priority": -5})
    assert perform(READING) == perform(READING) == [early]
    [owned] = perform(OWNING)
    assert (owned.origin, owned.owner, owned.claims, owned.available_at_ms) == (early.id, 0, 1, clock.now_ms + 60_000)
    assert EndedTask.objects.get(id=early.id).ending == "claimed"
    assert perform(READING) == [late]
    assert origins(perform(OWNING)) == [late.id]
    assert perform(OWNING) == perform(READING) == []


def test_the_own_moment_decides_what_is_available_and_when_the_lease_ends(perform, clock):
    [task] = add({"timespec_ms": clock.now_ms + 1_000})
    for moment_ms, found in ((clock.now_ms + 999, []), (clock.now_ms + 1_000, [task])):
        assert perform(Query(groups=("mail",), at_ms=moment_ms)) == found
    assert perform(Query(groups=("mail",), duration_ms=5, at_ms=clock.now_ms + 999)) == []
    [owned] = perform(Query(groups=("mail",), duration_ms=5, at_ms=clock.now_ms + 2_000))
    assert (owned.available_at_ms, owned.leased_since_ms) == (clock.now_ms + 2_005, clock.now_ms)


def test_what_another_owner_leases_is_not_taken_before_its_lease_ends(perform, clock):
    [task] = add({})
    perform(Claim(groups=("mail",), owner=BOB, duration_ms=1_000))
    ahead = Query(groups=("mail",), duration_ms=60_000, at_ms=clock.now_ms + 10_000)
    assert perform(ahead) == []
    clock.advance(1_000)
    [owned] = perform(ahead)
    assert owned.origin == task.id
    # What a client of MassTasker holds, another one gets whose clock is ahead: they are one owner.
    assert origins(perform(Query(groups=("mail",), duration_ms=1, at_ms=owned.available_at_ms))) == [task.id]


def test_a_successor_goes_on_with_lease_priority_and_large_data(perform, clock):
    large = b"x" * PAYLOAD_BYTES
    [task] = add({"priority": 7, "data": large})
    [owned] = perform(OWNING)
    payloads = list(Payload.objects.values_list("id", flat=True))
    clock.advance(1_000)
    again = NewTask(group="mail", id=owned.id, data=large, timespec_ms=clock.now_ms + 60_000)
    [renewed] = perform(Update(adds=(again,), deletes=(owned.id,)))
    assert (renewed.origin, renewed.priority, renewed.leased_since_ms) == (task.id, 7, owned.leased_since_ms)
    assert EndedTask.objects.get(id=owned.id).ending == "renewed"
    assert list(Payload.objects.values_list("id", flat=True)) == payloads
    assert Task.objects.get(id=renewed.id).data == large
    [done] = perform(Update(adds=(NewTask(group="done", id=renewed.id, data=b"1"),), deletes=(renewed.id,)))
    assert (done.origin, done.leased, done.data) == (task.id, False, b"1")
    assert list(KeptPayload.objects.values_list("id", "gone")) == [(payloads[0], 1)]


def test_an_operator_overrides_the_owners_of_what_was_described_only(perform):
    add({}, {})
    one, other = (task.id for task in perform(Claim(groups=("mail",), owner=BOB, limit=2)))
    operator = Operator(name="Ann")
    with pytest.raises(Exception, match=f"leased to another client: {other}$"):
        perform(Update(deletes=(one, other), matched=frozenset([one]), operator=operator))
    assert perform(Update(deletes=(one, other), matched=frozenset([one, other]), operator=operator)) == []


@only_postgresql
def test_a_query_passes_over_what_another_transaction_holds(perform):
    first, second = add({}, {})
    with Rival("Ann") as ann:
        with ann.transaction() as hers:
            ann.do(lambda: Task.objects.commit(owner=ANN, updates=[Change(id=first.id)]))
            assert origins(perform(OWNING)) == [second.id]
            assert perform(READING) == [first]  # Reading waits for nobody.
            hers.roll_back()
        assert origins(perform(OWNING)) == [first.id]


@only_postgresql
def test_a_query_does_not_say_nothing_while_all_is_locked(perform, monkeypatch):
    monkeypatch.setattr("tasks_app.database.Dialect.patience_s", 0.2)
    monkeypatch.setattr("tasks_app.writer.writer.PATIENCE_S", 0.2)
    [task] = add({})
    with Rival("Ann") as ann, ann.transaction() as hers:
        ann.do(lambda: Task.objects.commit(owner=ANN, updates=[Change(id=task.id)]))
        with pytest.raises(StoreBusy):
            perform(OWNING)
        hers.roll_back()
        assert origins(perform(OWNING)) == [task.id]
