"""Every verb of the API from Python."""

import asyncio
import inspect
import json
import subprocess
import sys
import time

import pytest
from msgspec.structs import replace

from lab.testing import PROJECT
from taskstore import (
    AsyncClient,
    Change,
    Client,
    CommitRefused,
    InvalidInput,
    NewTask,
    NotFound,
    UnexpectedAnswer,
    endpoints,
)
from taskstore.client import client as clients
from taskstore.client.calls import Call
from taskstore.client.verbs import AskedPreview
from taskstore.endpoints import ENDPOINTS
from taskstore.types.bulk import BulkPreviewRequest, ByState
from taskstore.types.limits import Rate
from taskstore.types.requests import Nothing
from taskstore.types.tasks import State

from .breaking import proxy_to


class Calls(Client):
    """The calls themselves, which nobody sends."""

    def send(self, call):
        return call

    pieces = send


NOT_CALLS = {"batch", "close", "for_claims", "in_a_hurry", "pieces", "send"}
CALLS = {
    name: call
    for name, call in inspect.getmembers(Calls, inspect.isfunction)
    if not name.startswith("_") and name not in NOT_CALLS
}
NONE = ByState(**dict.fromkeys(State, 0))
PREVIEW = AskedPreview(
    count=0,
    by_state=NONE,
    claimed=0,
    ready_already=0,
    group="",
    samples=(),
    bound=1,
    as_of=1,
    to_type="",
    asked=BulkPreviewRequest(verb="requeue"),
)
# What the calls that need more than nothing are made with.
ASKED = {
    "claim": ("mail",),
    "pause": ("mail",),
    "resume": ("mail",),
    "group_limits": ("mail",),
    "set_limits": ("mail",),
    "remove_limits": ("mail",),
    "group": ("mail",),
    "task": (1,),
    "tasks": ([1],),
    "history": (1,),
    "cancel": ([1],),
    "import_tasks": (b"",),
    "report_progress": (1, 0.5),
    "bulk_preview": ("requeue",),
    "bulk_start": (PREVIEW,),
    "operation": (1,),
    "operation_items": (1,),
    "cancel_operation": (1,),
    "undo_operation": (1,),
}
MADE_OF_COMMITS = {"add", "renew", "release", "move", "delete"}
# The same in other words, and what is for people.
OTHER_WAYS = {"group", "tasks"}
# They have clients of their own.
ELSEWHERE = ("/batches", "/commands", "/jobs", "/schedules")


@pytest.mark.once
def test_every_endpoint_is_reached_by_a_call():
    unsent = Calls("http://127.0.0.1")
    calls = [
        call(unsent, *ASKED.get(name, ())) for name, call in CALLS.items() if name not in {*MADE_OF_COMMITS, "group"}
    ]
    calls.append(clients._group("mail", limit=0, owned=False, labels=None))
    reached = {call.row.name for call in calls}
    there_are = {each.name for each in ENDPOINTS if not each.path.startswith(ELSEWHERE)}
    assert reached == there_are - OTHER_WAYS


@pytest.mark.once
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_both_clients_have_every_call(kind):
    for name in CALLS:
        assert (
            inspect.signature(getattr(kind, name)).parameters.keys() == inspect.signature(CALLS[name]).parameters.keys()
        )


def test_a_commit_answers_adds_then_updates_and_refuses_whole(store):
    old = store.add("mail", "1")
    new, changed = store.commit(adds=[NewTask(group="sent")], updates=[Change(id=old.id, data=b"2")])
    assert (new.group, changed.data) == ("sent", b"2")
    with pytest.raises(CommitRefused) as refused:
        store.commit(adds=[NewTask(group="sent")], deletes=[old.id], depends=[old.id])
    assert (refused.value.refusal.deletes, refused.value.refusal.depends) == ((old.id,), (old.id,))
    with pytest.raises(CommitRefused):
        store.delete(new, old)
    assert store.task(new.id) == new
    [claimed] = store.claim("sent")
    with pytest.raises(CommitRefused):
        store.commit(deletes=[claimed.id], client_id=store.id + 1)


def test_data_is_text_or_bytes_and_comes_back_as_bytes(store):
    for data in (b"\xff\0\xfe", b"", "\0é😀".encode()):
        assert store.task(store.add("mail", data).id).data == data
    assert store.add("mail", '{"big": 9007199254740993}').json() == {"big": 2**53 + 1}
    typed = store.add("mail", b"\xff", data_type="type.googleapis.com/x")
    assert store.release(typed).data_type == "type.googleapis.com/x"
    with pytest.raises(TypeError, match=r"json\.dumps"):
        store.add("mail", {"no": "data"})


def test_wrong_values_are_named(store):
    with pytest.raises(InvalidInput) as named:
        store.commit(adds=[NewTask(group="mail", priority=101), NewTask(group="x" * 256, labels={"a": "\ud800"})])
    assert set(named.value.fields) == {"adds[0].priority", "adds[1].group", "adds[1].labels.a"}
    task = store.add("mail")
    with pytest.raises(InvalidInput) as named:
        store.commit(updates=[Change(id=task.id, group="x" * 256), Change(id=task.id + 1, priority=101)])
    assert set(named.value.fields) == {"updates[0].group", "updates[1].priority"}
    with pytest.raises(InvalidInput, match=rf"adds\[0\].id.*{task.id}"):
        store.commit(adds=[NewTask(group="mail", id=task.id)])
    with pytest.raises(InvalidInput, match="line 2: id"):
        store.import_tasks([NewTask(group="mail"), NewTask(group="mail", id=task.id)])
    assert store.groups() == ["mail"]
    assert [each.id for each in store.group("mail")] == [task.id]


def test_what_a_verb_does_not_name_stays(store):
    task = store.commit(adds=[NewTask(group="mail", data=b"1", data_type="a/b", error="torn", labels={"a": "b"})])[0]
    [held] = store.claim("mail")
    renewed = store.renew(held, 1_000)
    [changed] = store.commit(updates=[Change(id=renewed.id, timespec_ms=-1_000)])
    moved = store.move(changed, "reports")
    back = store.release(moved)
    kept = (back.data, back.data_type, back.error, back.labels, back.origin)
    assert kept == (task.data, task.data_type, task.error, task.labels, task.id)
    assert (back.group, back.owner) == ("reports", 0)
    cleared = store.move(back, "mail", data="2", error="")
    assert (cleared.data, cleared.data_type, cleared.error) == (b"2", "", "")


def test_a_group_is_listed_as_it_comes_in(store):
    store.commit(adds=[NewTask(group="../a b", data=b"x" * 100_000, labels={"n": str(n)}) for n in range(5)])
    store.claim("../a b")
    assert len(list(store.group("../a b", owned=True))) == 5
    assert len(list(store.group("../a b"))) == 4
    assert len(list(store.group("../a b", limit=2))) == 2
    [third] = store.group("../a b", owned=True, labels={"n": "3"})
    assert third.labels == {"n": "3"}
    assert len(list(store.group("../a b", owned=True, labels={"n": None}))) == 5
    assert list(store.group("nothing")) == []


def test_what_was_exported_can_be_imported(store):
    store.import_tasks([NewTask(group="mail", data=data, labels={"a": "b"}) for data in (b"\xff", b"1")])
    file = b"".join(store.export_tasks("group:mail"))
    imported = store.import_tasks(file, group="copy")
    assert imported.imported == 2
    copies = [task for task in store.tasks(imported.ids) if task]
    assert {(task.group, task.data, task.labels["a"]) for task in copies} == {
        ("copy", b"\xff", "b"),
        ("copy", b"1", "b"),
    }
    assert b"".join(store.export_tasks("group:mail", format="csv")).count(b"\r\n") == 3
    with pytest.raises(InvalidInput):
        list(store.export_tasks(format="pdf"))


def test_the_numbers_of_groups_and_who_works_there(store):
    store.add("mail")
    store.claim("mail")
    [numbers] = store.stats().groups
    assert (numbers.group, numbers.claimed, numbers.ready, numbers.oldest_ready_ms) == ("mail", 1, 0, None)
    heard = store.heartbeat("mailer", groups=["mail"], version="1", info={"done": 3})
    assert heard.client_id == store.id
    [seen] = store.clients()
    assert (seen.name, seen.groups, seen.info, seen.pid) == ("mailer", ("mail",), {"done": 3}, heard.pid)
    assert store.health().status == store.ready().status == "ok"
    assert "taskstore_commits_total" in store.metrics()
    assert "/claim" in store.schema()["paths"]


def test_a_group_is_paused_and_goes_on(store):
    store.add("pay/mail")
    assert store.pause("pay/mail", "the bank is away").paused.reason == "the bank is away"
    assert store.claim("pay/mail") == []
    store.resume("pay/mail")
    assert len(store.claim("pay/mail")) == 1
    page = store.audit(group="pay/mail", limit=1)
    assert [entry.action for entry in page.entries] == ["resume"]
    assert store.audit(group="pay/mail", after=page.after).entries[0].action == "pause"


def test_a_group_is_limited(store):
    store.commit(adds=[NewTask(group="pay/mail", labels={"to": "ann"}) for _ in range(3)])
    assert store.group_limits("pay/mail") is None
    assert store.set_limits("pay/*", running=2, rate=Rate(5, 60_000), reason="the bank is slow").name == "pay/*"
    assert [str(limit) for limit in store.limits()] == ["2 running and 5 per 60 s"]
    assert len(store.claim("pay/mail", limit=5)) == 2
    limit = store.group_limits("pay/mail")
    assert (limit.name, limit.why) == ("pay/*", "2 of 2 running")
    assert [(use.leased, use.claimed) for use in limit.use] == [(2, 2)]
    assert store.stats().groups[0].limit == limit
    assert store.audit(limit=1).entries[0].reason == "the bank is slow"
    assert store.remove_limits("pay/*").running == 2
    assert store.remove_limits("pay/*") is store.group_limits("pay/mail") is None
    assert store.stats().groups[0].limit is None


def test_each_value_of_a_label_is_told_with_what_holds_it_back(store):
    for name in ("acme", "acme", "duck"):
        store.add("mail", labels={"tenant": name})
    store.set_limits("mail", running=1, by="tenant")
    assert len(store.claim("mail", limit=9)) == 2
    limit = store.group_limits("mail")
    assert limit.why == "tenant=acme: 1 of 1 running, and 1 more"
    assert [(use.value, use.leased, use.why) for use in limit.use] == [
        ("acme", 1, "1 of 1 running"),
        ("duck", 1, "1 of 1 running"),
    ]


def test_many_tasks_are_changed_and_changed_back(store):
    store.commit(adds=[NewTask(group="mail", error="failed") for _ in range(3)])
    preview = store.bulk_preview("purge", group="mail", state="retrying")
    assert (preview.count, preview.by_state.retrying, len(preview.samples)) == (3, 3, 3)
    with pytest.raises(InvalidInput):
        store.bulk_start(replace(preview, count=100))
    begun = store.bulk_start(preview, typed=preview.to_type, reason="a try")
    ended = wait_for_end(store, begun.id)
    assert (ended.done, ended.reason, ended.undoable) == (3, "a try", True)
    assert store.groups() == []
    assert {item.outcome for item in store.operation_items(begun.id).items} == {"done"}
    undo = wait_for_end(store, store.undo_operation(begun.id, "it was one").id)
    assert (undo.undoes, store.groups()) == (begun.id, ["mail"])
    assert [each.id for each in store.operations().operations] == [undo.id, begun.id]
    assert store.cancel_operation(begun.id).state == ended.state
    with pytest.raises(NotFound):
        store.operation(undo.id + 1)


def wait_for_end(store, id):
    deadline = time.monotonic() + 30
    while (operation := store.operation(id)).ended_at_ms is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return operation


def test_another_address_than_that_of_a_store(served, token, store):
    with Client(f"{served.url}/no/such/path", token=token) as other, pytest.raises(NotFound):
        other.groups()
    with pytest.raises(UnexpectedAnswer):
        store.send(Call.of(endpoints.METRICS, Nothing(), read=lambda content: int(content)))


def test_a_claim_that_waits_is_answered_when_there_is_something(served, token):
    async def add_to_the_waiting():
        async with AsyncClient(served.url, token=token) as store:
            began = time.monotonic()
            waiting = asyncio.create_task(store.claim("mail", wait_ms=90_000))
            assert await store.claim("reports", wait_ms=100) == []
            await store.add("mail", "hello")
            [task] = await waiting
            assert time.monotonic() - began < 30
            listed = [found async for found in store.group("mail", owned=True)]
            exported = b"".join([piece async for piece in store.export_tasks()])
            assert (listed, exported.count(b"\n")) == ([task], 1)
            await store.delete(task)
            with pytest.raises(CommitRefused):
                await store.renew(task, 1)

    asyncio.run(add_to_the_waiting())


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda client: client.commit(adds="x"), "adds[0]"),
        (lambda client: client.commit(updates=[NewTask(group="mail")]), "updates[0]"),
        (lambda client: client.schedules.put("daily", "@daily", task={"group": "mail"}), "task"),
        (lambda client: client.schedules.put("daily", "@daily", job={"function": "f"}), "job"),
        (lambda client: client.pause(""), "name"),
        (lambda client: client.resume(""), "name"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_by_its_field(store, ask, field):
    with pytest.raises(InvalidInput) as raised:
        ask(store)
    assert list(raised.value.fields) == [field]


# ---- What a client is in each process: small, and somebody of its own


FORK = """
import json, os, sys
from taskstore import Client

with Client(sys.argv[1], token=sys.argv[2]) as store, Client(sys.argv[1], token=sys.argv[2], client_id=7) as named:
    mine = store.add("mail", "of the parent")
    child = os.fork()
    told = {"id": store.id, "named": named.id, "owner": store.add("mail", "hello").owner, "groups": store.groups()}
    os.write(1, json.dumps(told).encode() + b"\\n")
    if child:
        os.waitpid(child, 0)
        store.delete(mine)
"""


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code, *arguments]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.once
def test_it_needs_no_django():
    names = "{name.partition('.')[0] for name in sys.modules}"
    code = f"import sys; from taskstore import Client, Worker; print(sorted({names}))"
    loaded = run(code)
    assert "httpx" in loaded
    for package in ("django", "rest_framework", "psycopg", "taskstore_project"):
        assert f"'{package}'" not in loaded


@pytest.mark.once
def test_a_child_has_a_number_and_connections_of_its_own(served, token):
    with proxy_to(served.url) as proxy:
        parent, child = map(json.loads, run(FORK, proxy.url, token).splitlines())
        assert proxy.connections == 2
    assert parent["id"] != child["id"]
    for each in (parent, child):
        assert (each["owner"], each["named"], each["groups"]) == (each["id"], 7, ["mail"])
