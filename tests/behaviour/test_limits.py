"""Limits of groups, by every way in: what is leased and claimed never exceeds them, and nothing else is held back."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, connections, transaction

from tasks_app.database import dialect_of, limits
from tasks_app.models import EndedTask, GroupLimit, LimitedTask, RecentClaim, Task
from tasks_app.writer.housekeeping import forget_claims
from taskstore.errors import CommitRefused, InvalidInput, StoreBusy
from taskstore.types.limits import Rate
from taskstore.types.tasks import Change, NewTask, Order

from .databases import only_postgresql
from .people import ANN, BOB

DAY_MS = 86_400_000


def add(store, number=1, **fields):
    return store.commit(owner=ANN, adds=[NewTask(**{"group": "mail"} | fields) for _ in range(number)])


def claimed(store, group="mail", **asked):
    return store.claim(group, **{"owner": BOB, "limit": 1} | asked)


def claim_all(store, group="mail", most=20, **asked):
    """One by one, as every way in can."""
    found: list = []
    while len(found) < most and (tasks := claimed(store, group, **asked)):
        found += tasks
    return found


def test_no_more_are_leased_than_may_run(store):
    add(store, 5)
    Task.objects.set_limits("mail", running=2)
    [first, _] = claim_all(store)
    assert claimed(store) == []
    store.commit(owner=BOB, deletes=[first.id])
    assert len(claim_all(store)) == 1


def test_a_claim_of_many_gets_as_many_as_are_allowed(store):
    add(store, 5)
    Task.objects.set_limits("mail", running=3)
    assert len(claim_all(store, limit=10)) == 3


def test_what_was_leased_before_is_counted(store):
    add(store, 5)
    held = claim_all(store, most=3)
    Task.objects.set_limits("mail", running=2)
    assert claimed(store) == []
    store.commit(owner=BOB, deletes=[held[0].id])
    assert claimed(store) == []
    store.commit(owner=BOB, deletes=[held[1].id])
    assert len(claim_all(store)) == 1


def test_without_its_limit_a_group_is_as_before(store):
    add(store, 3)
    Task.objects.set_limits("mail", running=1)
    assert len(claim_all(store)) == 1
    Task.objects.remove_limits("mail")
    assert len(claim_all(store)) == 2
    assert not LimitedTask.objects.exists()
    assert Task.objects.remove_limits("mail") is None


def test_an_expired_task_keeps_its_slot_and_whoever_claims_it_takes_that_over(store, clock):
    add(store, 3)
    Task.objects.set_limits("mail", running=1)
    [held] = claimed(store, duration_ms=1_000)
    clock.advance(1_000)
    [again] = claimed(store, order=Order.OLDEST)
    assert again.origin == held.origin
    assert claimed(store) == []


def test_a_renewal_needs_no_slot_and_giving_back_frees_one(store):
    add(store, 2)
    Task.objects.set_limits("mail", running=1)
    [held] = claimed(store)
    [held] = store.commit(owner=BOB, updates=[Change(id=held.id, timespec_ms=-60_000)])
    assert claimed(store) == []
    store.commit(owner=BOB, updates=[Change(id=held.id, release=True)])
    assert len(claim_all(store)) == 1


def test_each_value_of_the_label_has_its_own_slots(store):
    add(store, 3, labels={"tenant": "acme"})
    add(store, 1, labels={"tenant": "duck"})
    add(store, 2)
    Task.objects.set_limits("mail", running=1, by="tenant")
    found = claim_all(store)
    assert Counter(task.labels.get("tenant", "") for task in found) == {"acme": 1, "duck": 1, "": 1}
    # Also what is added and moved while the limit is there.
    [late] = add(store, 1, labels={"tenant": "late"}, group="letters")
    store.commit(owner=ANN, updates=[Change(id=late.id, group="mail")])
    assert [task.labels["tenant"] for task in claim_all(store)] == ["late"]


def test_the_highest_priority_comes_first_among_the_values_that_have_room(store):
    add(store, 2, labels={"tenant": "acme"}, priority=5)
    add(store, 2, labels={"tenant": "duck"}, priority=3)
    add(store, 2, labels={"tenant": "emu"}, priority=1)
    Task.objects.set_limits("mail", running=2, by="tenant")
    found = [task.labels["tenant"] for task in Task.objects.claim("mail", owner=BOB, limit=3)]
    assert sorted(found) == ["acme", "acme", "duck"]


def test_no_more_are_claimed_within_the_time_than_the_rate_allows(store, clock):
    add(store, 9)
    Task.objects.set_limits("mail", rate=Rate(2, 1_000))
    assert len(claim_all(store)) == 2
    clock.advance(600)
    Task.objects.set_limits("mail", rate=Rate(3, 1_000))
    assert len(claim_all(store)) == 1
    clock.advance(399)
    assert claimed(store) == []
    clock.advance(3)
    assert len(claim_all(store)) == 2
    clock.advance(10_000)
    assert len(claim_all(store)) == 3
    assert RecentClaim.objects.count() <= 3


def test_a_rate_counts_claims_that_have_ended_and_those_of_expired_tasks(store, clock):
    add(store, 5)
    Task.objects.set_limits("mail", rate=Rate(2, 60_000))
    [held] = claimed(store, duration_ms=1_000)
    store.commit(owner=BOB, deletes=[held.id])
    claimed(store, duration_ms=1_000)
    clock.advance(1_000)
    assert claimed(store) == []


def test_a_rate_counts_what_was_claimed_under_another_limit(store, clock):
    add(store, 9)
    slow, fast = Rate(2, 60_000), Rate(3, 60_000)
    Task.objects.set_limits("mail", rate=slow)
    assert len(claim_all(store)) == 2
    Task.objects.set_limits("m*", running=1)  # It has a shorter name, and limits other groups.
    Task.objects.set_limits("mail", rate=slow)
    assert claimed(store) == []
    Task.objects.remove_limits("m*")
    assert claimed(store) == []
    Task.objects.remove_limits("mail")
    Task.objects.set_limits("mail", rate=slow)
    assert claimed(store) == []
    Task.objects.set_limits("mail", rate=fast, by="tenant")
    assert len(claim_all(store)) == 1  # Tasks without the label share a value.
    clock.advance(60_200)
    assert len(claim_all(store)) == 3


@pytest.mark.parametrize("by", ["", "tenant"])
def test_a_claim_while_the_clock_was_ahead_counts_for_one_window(store, clock, by):
    add(store, 9)
    Task.objects.set_limits("mail", rate=Rate(2, 60_000), by=by)
    clock.advance(24 * 3_600_000)
    assert len(claim_all(store)) == 2
    clock.advance(-24 * 3_600_000)
    assert claimed(store) == []
    clock.advance(59_000)
    assert claimed(store) == []
    clock.advance(1_200)
    assert len(claim_all(store)) == 2
    assert claimed(store) == []


@pytest.mark.parametrize("by", ["", "tenant"])
@pytest.mark.parametrize("away_ms", [-3_000, DAY_MS, -DAY_MS])
def test_a_clock_that_goes_away_and_comes_back_has_forgotten_no_claim(store, clock, by, away_ms):
    add(store, 9)
    Task.objects.set_limits("mail", rate=Rate(2, 60_000), by=by)
    assert len(claim_all(store)) == 2
    clock.advance(away_ms)
    add(store, group="other")
    claimed(store, "other")
    if away_ms < 0:
        assert claimed(store) == []
    dialect = dialect_of("default")
    with transaction.atomic():
        dialect.drive(forget_claims(dialect))
    clock.advance(100 - away_ms)
    assert claimed(store) == []
    clock.advance(60_100)
    assert len(claim_all(store)) == 2


def test_a_clock_that_comes_near_a_claim_again_counts_it_again(store, clock):
    add(store, 9)
    Task.objects.set_limits("mail", rate=Rate(1, 1_000))
    assert len(claimed(store)) == 1
    clock.advance(-3_000)
    assert claimed(store) == []
    clock.advance(2_900)
    assert claimed(store) == []
    clock.advance(1_300)
    assert len(claimed(store)) == 1


def test_a_claim_while_the_clock_is_ahead_does_not_make_room_for_one_when_it_comes_back(store, clock):
    add(store, 9)
    Task.objects.set_limits("mail", rate=Rate(2, 60_000))
    assert len(claim_all(store)) == 2
    clock.advance(DAY_MS)
    assert len(claimed(store)) == 1
    clock.advance(100 - DAY_MS)
    assert claimed(store) == []


def test_a_prefix_limits_each_of_its_groups_and_the_longest_name_counts(store):
    for group in ("pay/in", "pay/out", "pay/vip", "mail"):
        add(store, 4, group=group)
    Task.objects.set_limits("pay/*", running=1)
    Task.objects.set_limits("pay/v*", running=3)
    Task.objects.set_limits("pay/vip", running=2)
    counts = {group: len(claim_all(store, group)) for group in ("pay/in", "pay/out", "pay/vip", "mail")}
    assert counts == {"pay/in": 1, "pay/out": 1, "pay/vip": 2, "mail": 4}
    Task.objects.remove_limits("pay/vip")
    assert len(claim_all(store, "pay/vip")) == 1


def test_a_paused_group_stays_paused_with_a_limit(store):
    from tasks_app.control import pauses

    add(store)
    Task.objects.set_limits("mail", running=1)
    pauses.pause("mail")
    assert claimed(store) == []
    pauses.resume("mail")
    assert len(claim_all(store)) == 1


# ---- In Python alone


@pytest.mark.django_db(transaction=True)
class TestInPython:
    def test_an_update_that_leases_needs_a_slot(self):
        one, other = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * 2)
        Task.objects.set_limits("mail", running=1)
        [held] = Task.objects.commit(owner=BOB, updates=[Change(id=one.id, timespec_ms=-60_000)])
        with pytest.raises(CommitRefused) as refused:
            Task.objects.commit(owner=BOB, updates=[Change(id=other.id, timespec_ms=-60_000)])
        assert refused.value.refusal.bugs == (
            'updates[0] leases a task of "mail", where a limit allows 1 at once: try later',
        )
        # The same commit may free the slot that it takes.
        Task.objects.commit(owner=BOB, deletes=[held.id], updates=[Change(id=other.id, timespec_ms=-60_000)])

    def test_several_groups_are_claimed_as_far_as_each_allows(self):
        for group in ("a", "b", "c"):
            Task.objects.commit(owner=ANN, adds=[NewTask(group=group)] * 3)
        Task.objects.set_limits("a", running=1)
        Task.objects.set_limits("b", running=2)
        found = Task.objects.claim(["a", "b", "c"], owner=BOB, limit=10)
        assert Counter(task.group for task in found) == {"a": 1, "b": 2, "c": 3}

    def test_a_claim_of_several_groups_counts_at_one_time_in_each(self):
        groups = [f"g{number}" for number in range(30)]
        Task.objects.commit(owner=ANN, adds=[NewTask(group=group) for group in groups])
        Task.objects.set_limits("g*", rate=Rate(1, 1_000))
        found = Task.objects.claim(groups, owner=BOB, limit=30)
        noted = dict(RecentClaim.objects.values_list("group", "at_ms"))
        assert [task.group for task in found if noted[task.group] < task.leased_since_ms] == []

    def test_a_limit_that_was_taken_back_limits_nothing(self):
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * 3)
        with transaction.atomic():
            Task.objects.set_limits("mail", running=1)
            assert len(Task.objects.claim("mail", owner=BOB, limit=5)) == 1
            transaction.set_rollback(True)
        assert len(Task.objects.claim("mail", owner=BOB, limit=5)) == 3
        assert not GroupLimit.objects.exists()

    def test_many_values_all_get_their_turn(self, monkeypatch):
        monkeypatch.setattr("tasks_app.database.limited_values.MOST_VALUES", 3)
        adds = [NewTask(group="mail", labels={"tenant": f"t{number}"}) for number in range(10) for _ in range(2)]
        Task.objects.commit(owner=ANN, adds=adds)
        Task.objects.set_limits("mail", running=1, by="tenant")
        found = [Task.objects.claim("mail", owner=BOB) for _ in range(10)]
        assert len({task.labels["tenant"] for tasks in found for task in tasks}) == 10
        assert Task.objects.claim("mail", owner=BOB) == []

    def test_threads_together_never_exceed_it(self):
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * 60)
        Task.objects.set_limits("mail", running=3)
        most, wrong = [0], []

        def work(number):
            try:
                for _ in range(10):
                    for task in Task.objects.claim("mail", owner=number, limit=2):
                        leased = Task.objects.filter(group="mail", leased_since_ms__gt=0).count()
                        most.append(leased)
                        Task.objects.commit(owner=number, deletes=[task.id])
            except Exception as error:
                wrong.append(error)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(10, 16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert 1 <= max(most) <= 3
        assert not LimitedTask.objects.exists()

    @only_postgresql
    def test_a_change_waits_for_transactions_with_the_former_limits_but_not_for_ever(self):
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * 3)
        wrong = []

        def change():
            try:
                Task.objects.set_limits("mail", running=1)
            except StoreBusy as busy:
                wrong.append(str(busy))
            finally:
                connections.close_all()

        with transaction.atomic():
            Task.objects.commit(owner=ANN, adds=[NewTask(group="other")])
            thread = threading.Thread(target=change)
            thread.start()
            thread.join()
        assert wrong == ["a long transaction is using the limits, or has locked their rows: try again later"]
        assert len(claim_all(Task.objects)) == 3
        change()
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
        assert claimed(Task.objects) == []

    @only_postgresql
    def test_a_lease_begins_after_the_end_of_the_one_that_made_room(self, monkeypatch):
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * 2)
        Task.objects.set_limits("mail", running=1)
        [held] = Task.objects.claim("mail", owner=BOB)
        lock = limits._lock

        def end():
            Task.objects.commit(owner=BOB, deletes=[held.id])
            connections.close_all()

        def lock_while_it_ends(group, dialect):
            now_ms = yield from lock(group, dialect)
            time.sleep(0.005)
            with ThreadPoolExecutor(1) as elsewhere:
                elsewhere.submit(end).result()
            return now_ms

        monkeypatch.setattr(limits, "_lock", lock_while_it_ends)
        [later] = Task.objects.claim("mail", owner=BOB)
        ended = EndedTask.objects.get(id=held.id)
        assert later.leased_since_ms >= ended.ended_at_ms

    @only_postgresql
    @pytest.mark.parametrize("plans", ["force_generic_plan", "force_custom_plan"])
    def test_whoever_reads_the_limits_locks_them_with_a_cached_plan_too(self, plans):
        dialect = dialect_of("default")

        def change():
            try:
                with transaction.atomic():
                    dialect.send(dialect.change_limits(50)[0])
                return True
            except OperationalError:
                return False
            finally:
                connections.close_all()

        connection.ensure_connection()
        session = connection.connection
        session.execute(f"SET plan_cache_mode = {plans}")
        with ThreadPoolExecutor(1) as elsewhere:
            for _ in range(7):  # From the sixth on a plan is kept.
                with session.transaction():
                    session.execute(f"SELECT {dialect.limits_version}", prepare=True)
                    assert not elsewhere.submit(change).result()
                assert elsewhere.submit(change).result()
        connection.close()

    @only_postgresql
    def test_a_change_that_waits_for_a_row_stops_nobody_else(self):
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
        Task.objects.set_limits("mail", running=1, by="tenant")
        holds, ends, wrong = threading.Event(), threading.Event(), []

        def hold():
            with transaction.atomic():
                list(LimitedTask.objects.select_for_update())
                holds.set()
                ends.wait(20)
            connections.close_all()

        def change():
            try:
                Task.objects.set_limits("mail", running=2)
            except StoreBusy as busy:
                wrong.append(str(busy))
            finally:
                connections.close_all()

        threads = [threading.Thread(target=hold), threading.Thread(target=change)]
        threads[0].start()
        holds.wait(20)
        threads[1].start()
        threads[1].join(10)
        told = list(wrong)
        ends.set()
        for thread in threads:
            thread.join()
        assert told == ["a long transaction is using the limits, or has locked their rows: try again later"]

    @only_postgresql
    def test_a_callers_transaction_keeps_its_own_patience(self):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '7s'")
            Task.objects.set_limits("mail", running=1)
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone() == ("7s",)

    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            ({}, "running"),
            ({"running": 0}, "running"),
            ({"running": -3}, "running"),
            ({"rate": Rate(0, 1_000)}, "rate.claims"),
            ({"rate": Rate(5, -1)}, "rate.per"),
            ({"rate": Rate(10_001, 1_000)}, "rate.claims"),
            ({"rate": Rate(5, 3_600_001)}, "rate.per"),
            ({"running": 1, "by": "x" * 256}, "by"),
            ({"running": 1, "name": ""}, "name"),
        ],
    )
    def test_what_is_no_limit_is_named(self, asked, field):
        with pytest.raises(InvalidInput) as refused:
            Task.objects.set_limits(**{"name": "mail"} | asked)
        assert list(refused.value.fields) == [field]
        assert not GroupLimit.objects.exists()

    def test_after_a_flush_there_are_none(self):
        Task.objects.set_limits("mail", running=1)
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * 2)
        Task.objects.claim("mail", owner=BOB)
        call_command("flush", "--no-input", verbosity=0)
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * 2)
        assert len(Task.objects.claim("mail", owner=BOB, limit=5)) == 2
