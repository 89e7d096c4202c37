"""Many at once: races, waits that nobody waits for any more, and thousands of waits."""

import gc
import time
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from grpc import StatusCode

from tasks_app.models import Task
from tests.behaviour.databases import only_postgresql
from tests.behaviour.rivals import Rival, wait_until

from .client import Client, message, outcome, querying, ref
from .test_query import at
from .test_update import BOB, refused

WAIT_S = 300


def test_sixteen_threads_get_each_of_five_hundred_tasks_once(client, connect):
    client.create(*["mail"] * 500)

    def work(client: Client) -> list[int]:
        ids: list[int] = []
        while True:
            # As MassTasker's own clients: each with its own clock.
            asked = querying("mail", 600, now=at(time.time_ns() // 1_000_000))
            answer = client.begin("Query", asked)
            if answer.code() is not StatusCode.OK:
                assert answer.code() is StatusCode.NOT_FOUND
                return ids
            ids.append(answer.result().task.id)

    clients = [connect() for _ in range(16)]
    with ThreadPoolExecutor(16) as threads:
        taken = [task_id for ids in threads.map(work, clients) for task_id in ids]
    assert Counter(taken).most_common(1)[0][1] == 1
    assert sorted(taken) == client.ids("mail")
    assert len(taken) == 500


@pytest.mark.once
def test_cancelled_waits_take_nothing_and_leave_nothing(client, writer, until_waiting):
    def wait_and_go() -> None:
        waits = [client.begin("Query", querying("mail", 60, wait=True), WAIT_S) for _ in range(200)]
        until_waiting(200)
        for each in waits:
            each.cancel()
        until_waiting(0)

    wait_and_go()
    tracemalloc.start()
    try:
        wait_and_go()
        before = held_bytes()
        for _ in range(4):
            wait_and_go()
        # The last calls are put away a moment later. A single one takes several thousand bytes.
        wait_until(lambda: held_bytes() - before < 4 * 200 * 250)
    finally:
        tracemalloc.stop()
    added = client.create(*["mail"] * 200)
    assert client.ids() == added
    assert all(task.claims == 0 for task in Task.objects.find(added) if task)


def held_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_who_cancels_as_the_task_comes_takes_it_or_not_but_once(client, until_waiting):
    waits = [client.begin("Query", querying("mail", 60, wait=True), WAIT_S) for _ in range(50)]
    until_waiting(50)
    for each in waits[:49]:
        each.cancel()
    [added] = client.create("mail")
    task = waits[49].result(10).task
    assert Task.objects.get(id=task.id).origin == added


@only_postgresql
def test_a_task_that_is_claimed_meanwhile_belongs_to_its_group_still(client):
    client.create("mail", "mail")
    with Rival("Bob") as bob:
        with bob.transaction() as his:
            bob.do(lambda: Task.objects.claim("mail", owner=BOB))
            deletion = client.begin("Update", message("UpdateRequest", deleted=[ref(group="mail")]))
            wait_until(somebody_waits_for_a_lock)
            his.commit()
        assert deletion.code() is StatusCode.OK
    assert client.ids("mail") == []


def somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0])


@pytest.mark.once
def test_two_thousand_wait_at_once(connect, until_waiting):
    clients = [connect() for _ in range(10)]
    waits = [
        client.begin("Query", querying(f"group {number % 50}", 60, wait=True), WAIT_S)
        for client in clients
        for number in range(200)
    ]
    until_waiting(2_000)
    clients[0].create(*[f"group {number % 50}" for number in range(2_000)])
    assert len({each.result().task.id for each in waits}) == 2_000


def test_a_large_message_that_was_refused_is_not_kept(connect):
    body = message("UpdateRequest", created=[message("Task", group="mail")] * 100_000).SerializeToString()
    error = refused(connect().call, "Update", body)
    assert outcome(error)[0] is StatusCode.INVALID_ARGUMENT

    def kept():
        referents = gc.get_referents(*gc.get_objects())
        return [each for each in referents if type(each) is bytes and len(each) == len(body) and each is not body]

    end_s = time.monotonic() + 10  # Its call may be about to end.
    while kept() and time.monotonic() < end_s:
        gc.collect()
        time.sleep(0.05)
    assert len(kept()) == 0
