"""Query, with every documented outcome."""

import time

import grpc
import pytest
from grpc import StatusCode

from tasks_app.access import tokens
from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.core.operations import Claim
from tasks_app.models import Scope, Task, Token
from taskstore.types.tasks import NewTask

from .client import message, outcome, querying, wrong_fields
from .test_update import BOB, refused

FAR_S = 3_600


def at(ms):
    return {"seconds": ms // 1_000, "nanos": ms % 1_000 * 1_000_000}


def test_without_a_lease_the_task_is_read_and_stays(client):
    [config] = client.create("config")
    assert [client.query("config").id for _ in range(2)] == [config, config]
    assert client.ids() == [config]


def test_with_a_lease_it_is_replaced_and_nobody_else_gets_it(client):
    [old] = client.create("mail", labels={"colour": "red"}, error="torn", data={"type_url": "a/B", "value": b"\xff"})
    began_ms = Task.objects.now_ms()
    task = client.query("mail", own_for_s=60)
    assert task.id > old
    assert (dict(task.labels), task.error) == ({"colour": "red"}, "torn")
    assert (task.data.type_url, task.data.value) == ("a/B", b"\xff")
    assert began_ms + 60_000 <= round(task.not_before.ToNanoseconds() / 1e6) <= began_ms + 70_000
    assert outcome(refused(client.query, "mail", 60))[0] is StatusCode.NOT_FOUND
    held = Task.objects.get(id=task.id)
    assert (held.owner, held.leased, held.claims, held.origin) == (0, True, 1, old)


def test_the_earliest_comes_first_whatever_its_priority_and_of_equals_the_first(client):
    now_ms = Task.objects.now_ms()
    tasks = [(now_ms - 1_000, 5), (now_ms - 2_000, 0), (now_ms - 2_000, 9), (now_ms + 60_000, 9)]
    adds = [NewTask(group="mail", timespec_ms=time_ms, priority=priority) for time_ms, priority in tasks]
    added = Task.objects.commit(owner=0, adds=adds)
    assert client.query("mail").id == added[1].id
    found = [client.query("mail", own_for_s=60).id for _ in range(3)]
    assert [Task.objects.get(id=task_id).origin for task_id in found] == [added[1].id, added[2].id, added[0].id]


def test_nothing_there_is_not_found(client):
    client.create("mail", not_before=at(Task.objects.now_ms() + 60_000))
    for own_for_s in (0, 60):
        for group in ("mail", "reports"):
            assert outcome(refused(client.query, group, own_for_s))[0] is StatusCode.NOT_FOUND


def test_the_own_moment_of_a_client_is_that_of_the_question_and_of_the_lease(client):
    now_ms = Task.objects.now_ms()
    [soon] = client.create("mail", not_before=at(now_ms + 60_000))
    assert outcome(refused(client.query, "mail", 60, now=at(now_ms + 59_999)))[0] is StatusCode.NOT_FOUND
    assert client.query("mail", now=at(now_ms + 60_000)).id == soon
    owned = client.query("mail", 60, now=at(now_ms + 60_000))
    assert owned.not_before.ToNanoseconds() == (now_ms + 120_000) * 1_000_000
    client.create("reports")
    assert outcome(refused(client.query, "reports", 60, now=at(now_ms - 60_000)))[0] is StatusCode.NOT_FOUND


def test_it_never_takes_what_another_owner_leases(client):
    client.create("mail")
    [held] = Task.objects.perform(Claim(groups=("mail",), owner=BOB))
    later = at(Task.objects.now_ms() + FAR_S * 1_000)
    assert outcome(refused(client.query, "mail", 60, now=later))[0] is StatusCode.NOT_FOUND
    assert client.query("mail", now=later).id == held.id
    [other] = client.create("mail")
    own = client.query("mail", 60)
    assert Task.objects.get(id=client.query("mail", 60, now=later).id).origin == other
    assert Task.objects.find([own.id]) == [None]


def test_a_paused_group_gives_nothing_to_own(client):
    [mail] = client.create("mail")
    pauses.pause("mail", Actor("Ann"))
    assert outcome(refused(client.query, "mail", 60))[0] is StatusCode.NOT_FOUND
    assert client.query("mail").id == mail
    pauses.resume("mail", Actor("Ann"))
    assert client.query("mail", 60).id > mail


@pytest.mark.parametrize("own_for_s", [0, 60])
def test_it_waits_until_there_is_something(client, until_waiting, own_for_s):
    waits = client.begin("Query", querying("mail", own_for_s, wait=True))
    until_waiting(1)
    began_s = time.monotonic()
    [added] = client.create("mail")
    task = waits.result().task
    assert time.monotonic() - began_s < 0.9  # Before the look once a second.
    assert Task.objects.get(id=task.id).origin == added


def test_all_who_wait_to_read_are_woken_by_one_task(client, until_waiting):
    readers = [client.begin("Query", querying("config", wait=True)) for _ in range(5)]
    owner = client.begin("Query", querying("config", 60, wait=True))
    until_waiting(6)
    client.create("config")
    assert len({each.result().task.group for each in [*readers, owner]}) == 1


def test_a_wait_goes_on_by_the_clock_of_the_store(client, until_waiting):
    now_ms = Task.objects.now_ms()
    asked = [querying(f"{ms}", 60, wait=True, now=at(now_ms + ms)) for ms in (-9_000, 9_000)]
    behind, ahead = (client.begin("Query", each) for each in asked)
    until_waiting(2)
    client.create("-9000", "9000")
    for waits in (behind, ahead):
        not_before_ms = waits.result().task.not_before.ToNanoseconds() // 1_000_000
        assert now_ms + 60_000 <= not_before_ms < now_ms + 68_000


def test_a_lease_that_runs_out_and_a_time_that_comes_wake_it(client):
    client.create("mail")
    client.query("mail", own_for_s=0.2)
    assert client.query("mail", 60, wait=True).group == "mail"
    client.create("reports", not_before=at(Task.objects.now_ms() + 200))
    assert client.query("reports", wait=True).group == "reports"


def test_it_waits_until_the_deadline_and_no_longer(client, until_waiting):
    began_s = time.monotonic()
    error = refused(client.query, "mail", 60, timeout_s=0.3, wait=True)
    assert error.code() is StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began_s >= 0.3
    until_waiting(0)
    [added] = client.create("mail")
    assert client.ids() == [added]


def test_who_waits_when_the_server_stops_is_told_so(client, writer, serving, until_waiting):
    waits = client.begin("Query", querying("mail", 60, wait=True))
    until_waiting(1)
    serving.loop.call_soon_threadsafe(writer.end_waiting)
    with pytest.raises(grpc.RpcError) as error:
        waits.result()
    assert outcome(error.value)[0] is StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"group": "x" * 256}, "group"),
        ({"group": "a\0b"}, "group"),
        ({"own_for": {"seconds": 315_576_000_001}}, "own_for"),
        ({"own_for": {"seconds": 1, "nanos": -1}}, "own_for"),
        ({"own_for": {"nanos": 1_000_000_000}}, "own_for"),
        ({"own_for": {"seconds": 315_576_000_000}}, "own_for"),
        ({"own_for": {"seconds": 1}, "now": {"seconds": 253_402_300_799}}, "own_for"),
        ({"now": {"seconds": 253_402_300_800}}, "now"),
        ({"now": {"nanos": -1}}, "now"),
    ],
)
def test_bad_input_names_the_field(client, asked, field):
    error = refused(client.call, "Query", message("QueryRequest", **{"group": "mail", **asked}))
    assert (outcome(error)[0], wrong_fields(error)) == (StatusCode.INVALID_ARGUMENT, [field])


@pytest.mark.parametrize("own_for", [{}, {"seconds": -1}, {"nanos": -1}, {"seconds": -315_576_000_000}])
def test_a_lease_of_nothing_or_less_reads(client, own_for):
    [mail] = client.create("mail")
    assert client.call("Query", message("QueryRequest", group="mail", own_for=own_for)).task.id == mail


def test_a_reader_may_read_and_not_own(connect, client):
    client.create("mail", "reports")
    reader = connect(Scope.READ, "mail")
    assert reader.query("mail").group == "mail"
    for asked in (("mail", 60), ("reports", 0)):
        assert outcome(refused(reader.query, *asked))[0] is StatusCode.PERMISSION_DENIED


def test_a_wait_ends_when_its_token_is_revoked(connect, until_waiting, monkeypatch):
    monkeypatch.setattr(tokens, "LOOK_EVERY_S", 0.05)
    waits = connect().begin("Query", querying("mail", 60, wait=True))
    until_waiting(1)
    tokens.revoke(Token.objects.get())
    error = waits.exception()
    assert outcome(error)[0] is StatusCode.UNAUTHENTICATED
