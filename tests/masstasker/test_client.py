"""The calls of the client, and their errors."""

import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from lab.testing import PROJECT
from taskstore.masstasker import client
from taskstore.masstasker.client import (
    InvalidInput,
    LabelSelector,
    MassTaskerError,
    NoAnswer,
    NotAllowed,
    NotFound,
    Refused,
    TaskRef,
    Unavailable,
    Unrecoverable,
    connect,
    create,
    delete,
    move,
    new_task,
    require,
)
from taskstore.masstasker.operations import LONGEST_ERROR, error_text
from taskstore.types.tasks import State

from .conftest import LONG
from .other_servers import certificate_for_this_machine, empty_server
from .seeing import contents, states

pytestmark = pytest.mark.once

SHORT = timedelta(seconds=0.2)


def test_it_is_imported_without_django():
    code = "import sys, taskstore.masstasker.client; sys.exit('django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=False).returncode == 0


def test_what_is_created_is_read_and_owned(store):
    made = new_task("mail", StringValue(value="hello"), labels={"tier": "gold"})
    store.create(made)
    assert store.query("mail") == store.query("mail")
    read, owned = store.query("mail"), store.query("mail", own_for=LONG)
    assert read.id == made.id
    assert owned.id > made.id
    hello = StringValue()
    assert owned.data.Unpack(hello)
    assert (hello.value, owned.labels) == ("hello", {"tier": "gold"})
    assert store.query("mail") is None


def test_a_task_for_later_is_not_there_yet(store):
    store.create(new_task("mail", not_before=datetime.now(UTC) + LONG))
    assert states("mail") == [State.SCHEDULED]
    assert store.query("mail") is None


def test_a_wait_ends_with_a_task_or_with_its_time(store):
    assert store.query("mail", own_for=LONG, wait=SHORT) is None
    found = []
    waiting = threading.Thread(target=lambda: found.append(store.query("mail", own_for=LONG, wait=LONG)))
    waiting.start()
    store.create(new_task("mail", b"hello"))
    waiting.join()
    assert [task.data.value for task in found] == [b"hello"]


def test_a_moved_task_is_available_at_once_without_its_error(store, mail):
    mail.data.value, mail.error = b"HELLO", "broken"
    store.move("sent", mail)
    assert contents("mail") == []
    assert (states("sent"), contents("sent")) == ([State.READY], [b"HELLO"])
    found = store.query("sent")
    assert found
    assert (found.id, found.error) == (mail.id, "")


def test_a_reowned_task_is_held_longer_and_a_disowned_one_is_available(store, mail):
    before = mail.not_before.ToNanoseconds()
    store.reown(2 * LONG, mail)
    assert mail.not_before.ToNanoseconds() > before
    assert states("mail") == [State.CLAIMED]
    store.disown(mail)
    assert states("mail") == [State.READY]


def test_a_lease_is_renewed_by_the_servers_clock(address, token, mail, monkeypatch):
    an_hour_ago = SimpleNamespace(time=lambda: time.time() - 3_600, monotonic=time.monotonic)
    monkeypatch.setattr(client, "time", an_hour_ago)
    with connect(address, token=token) as late:
        late.disown(mail)
        task = late.query("mail", own_for=LONG)
        assert task
        late.reown(LONG, task)
    assert states("mail") == [State.CLAIMED]


def test_what_the_caller_has_changed_is_written(store, mail):
    mail.data.value = b"again"
    mail.labels["tier"] = "gold"
    store.update(mail)
    assert (contents("mail"), states("mail")) == ([b"again"], [State.CLAIMED])
    assert store.debug("mail").tasks[0] == mail


def test_several_operations_happen_together_or_not_at_all(store, mail):
    config, sent, again = new_task("config", b"1"), new_task("sent", b"hello"), new_task("sent", b"again")
    store.create(config)
    store.do(require(config), delete(mail), create(sent))
    assert (contents("mail"), contents("sent")) == ([], [b"hello"])
    replaced = client.Task.FromString(config.SerializeToString())
    store.update(config)
    with pytest.raises(Refused):
        store.do(require(replaced), create(again))
    with pytest.raises(NotFound):
        store.do(move("sent", mail), create(again))
    assert (mail.group, again.id) == ("mail", 0)
    assert contents("sent") == [b"hello"]


def test_refs_name_groups_and_labels(store):
    store.create(*(new_task("mail", labels={"tier": tier}) for tier in ("gold", "gold", "plain")))
    gold = TaskRef(selector=LabelSelector(labels={"tier": "gold"}))
    assert store.bulk_set(new_task("reports"), gold) == 2
    listing = store.debug("reports", limit=1)
    assert (len(listing.tasks), listing.num_tasks) == (1, 2)
    store.delete(TaskRef(group="mail"))
    assert [task.group for task in store.debug().tasks] == ["reports"] * 2


def test_what_is_wrong_is_told_by_field(store):
    with pytest.raises(InvalidInput) as refused:
        store.create(new_task("mail"), new_task("m" * 256))
    assert (refused.value.code, refused.value.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid")
    [(field, [text])] = refused.value.fields.items()
    assert field == "created[1].group"
    assert "255" in text


def test_the_token_is_that_of_the_environment(address, token, monkeypatch):
    monkeypatch.setenv("TASKSTORE_TOKEN", token)
    with connect(address) as known, connect(address, token="") as stranger:
        known.create(new_task("mail"))
        with pytest.raises(NotAllowed):
            stranger.create(new_task("mail"))


def test_a_server_that_is_not_there_is_told():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        channel = grpc.insecure_channel(address)
        with client.Client(channel, timeout=SHORT) as store, pytest.raises(NoAnswer):
            store.create(new_task("mail"))
    with connect(address) as store, pytest.raises(Unavailable):
        store.create(new_task("mail"))


@pytest.mark.parametrize(
    ("problem", "left"),
    [
        (None, {}),
        (Unrecoverable("broken"), {"failed": "broken"}),
    ],
)
def test_what_can_be_settled_is_deleted_or_moved_aside(store, mail, problem, left):
    store.commit_or_move(mail, problem, "failed")
    assert {task.group: task.error for task in store.debug().tasks} == left


@pytest.mark.parametrize(("problem", "group"), [(OSError("away"), "failed"), (Unrecoverable("broken"), "")])
def test_a_task_that_another_try_may_mend_is_given_back(store, mail, problem, group):
    with pytest.raises(type(problem)):
        store.commit_or_move(mail, problem, group)
    assert states("mail") == [State.READY]


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (ValueError("a\0b\ud800"), "a\N{REPLACEMENT CHARACTER}b?"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 20_000), "x" * LONGEST_ERROR),
    ],
)
def test_the_text_of_an_error_fits_a_task(problem, text):
    assert error_text(problem) == text


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("127.0.0.1:50053", True),
        ("[::1]:50053", True),
        ("localhost:50053", True),
        ("10.0.0.1:50053", False),
        ("localhost.example.org:50053", False),
    ],
)
def test_it_speaks_plainly_to_this_machine_only(address, plain, monkeypatch):
    opened = []
    for kind in ("insecure_channel", "secure_channel"):
        monkeypatch.setattr(grpc, kind, lambda *_, kind=kind: opened.append(kind))
    monkeypatch.setattr(client, "MassTaskerStub", lambda channel: None)
    connect(address)
    assert opened == ["insecure_channel" if plain else "secure_channel"]


def test_what_has_no_kind_of_its_own_has_its_code():
    with empty_server() as address:
        assert code_of_an_answer(connect(address)) is grpc.StatusCode.UNIMPLEMENTED


def test_it_speaks_tls_to_whom_its_certificates_vouch_for():
    certificate, key = certificate_for_this_machine()
    stranger, _ = certificate_for_this_machine()
    with empty_server(grpc.ssl_server_credentials([(key, certificate)])) as address:
        assert code_of_an_answer(connect(address, certificates=certificate)) is grpc.StatusCode.UNIMPLEMENTED
        assert code_of_an_answer(connect(address, certificates=stranger)) is grpc.StatusCode.UNAVAILABLE
        assert code_of_an_answer(connect(address)) is grpc.StatusCode.UNAVAILABLE


def code_of_an_answer(store):
    with store, pytest.raises(MassTaskerError) as told:
        store.create(new_task("mail"))
    return told.value.code
