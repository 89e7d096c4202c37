"""What each call goes through: who calls, how often, with which bytes, and what it ends with."""

import logging
from typing import Any

import grpc
import pytest
from django.db import OperationalError
from grpc import StatusCode
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from tasks_app.core.meters import meters
from tasks_app.grpc_api import authentication, servicer
from tasks_app.models import Scope
from tasks_app.writer.writer import Writer
from taskstore.errors import CommitUnknown, StoreBusy, StoreUnavailable

from .client import Client, message, outcome, reason, retry_after_s
from .test_update import refused

METHODS = {"Update": Scope.WORK, "Query": Scope.READ, "BulkSet": Scope.OPERATE, "Debug": Scope.READ}
ENOUGH = {
    Scope.READ: {Scope.READ},
    Scope.WORK: {Scope.READ, Scope.WORK},
    Scope.OPERATE: {Scope.READ, Scope.WORK, Scope.OPERATE},
    Scope.COMMANDS: {Scope.READ, Scope.WORK},
}


def asking(method):
    fields: dict[str, dict[str, Any]] = {"BulkSet": {"prototype": {"error": "torn"}}, "Query": {"group": "mail"}}
    return message(f"{method}Request", **fields.get(method, {}))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("secret", ["", "ts_nonsense", " "])
def test_without_a_valid_token_nobody_gets_in(serving, writer, method, secret):
    client = Client(serving.address, secret)
    assert outcome(refused(client.call, method, asking(method)))[0] is StatusCode.UNAUTHENTICATED
    client.close()


def test_without_tokens_everybody_may_everything(serving, writer, settings):
    settings.TASKSTORE_NO_AUTH = True
    client = Client(serving.address)
    client.create("mail")
    assert client.bulk_set(message("TaskRef", group="mail"), error="torn") == 1
    client.close()


@pytest.mark.parametrize("setting", ["TASKSTORE_TOKEN_RATE", "TASKSTORE_ADDRESS_RATE"])
def test_who_calls_too_often_is_told_when_to_come_again(connect, settings, setting):
    setattr(settings, setting, 1)
    client = connect()
    client.create("mail")
    error = refused(client.create, "mail")
    assert (outcome(error)[0], retry_after_s(error)) == (StatusCode.RESOURCE_EXHAUSTED, 1)


def test_who_guesses_tokens_is_slowed_down(serving, writer, settings):
    settings.TASKSTORE_WRONG_TOKEN_RATE = 2
    client = Client(serving.address, "ts_nonsense")
    codes = [outcome(refused(client.debug))[0] for _ in range(3)]
    client.close()
    assert codes == [*[StatusCode.UNAUTHENTICATED] * 2, StatusCode.RESOURCE_EXHAUSTED]


def test_what_gets_no_further_is_counted_by_its_reason(serving, connect, settings):
    def counts():
        return {reason: meters.sum_of(reason) for reason in ("unauthenticated", "forbidden", "invalid", "limit")}

    before = counts()
    stranger, reader = Client(serving.address, "ts_nonsense"), connect(Scope.READ)
    worker = connect(Scope.WORK)
    refused(stranger.debug)
    stranger.close()
    refused(reader.call, "Update", asking("Update"))
    refused(worker.call, "Update", b"\xff")
    settings.TASKSTORE_MAX_DATA_BYTES = 1
    refused(worker.call, "Update", message("UpdateRequest", created=[{"group": "mail", "data": {"value": b"long"}}]))
    assert {reason: number - before[reason] for reason, number in counts().items()} == dict.fromkeys(before, 1)


@pytest.mark.parametrize(
    ("error", "why", "after_s"),
    [
        (StoreBusy("too many"), "busy", 1),
        (StoreUnavailable("gone"), "unavailable", 1),
        (CommitUnknown("lost during COMMIT"), "commit_unknown", 0),
        (OperationalError("secret words of the database"), "unavailable", 1),
    ],
)
def test_trouble_with_the_store_is_told_with_what_to_do(client, monkeypatch, error, why, after_s):
    async def fail(writer, operation):
        raise error

    monkeypatch.setattr(Writer, "submit", fail)
    failed = refused(client.create, "mail")
    code, text = outcome(failed)
    assert (code, reason(failed), retry_after_s(failed)) == (StatusCode.UNAVAILABLE, why, after_s)
    assert "secret" not in text


def test_what_nobody_expected_is_in_the_log_under_a_number(client, monkeypatch, caplog):
    def fail(*_):
        raise ZeroDivisionError("secret words")

    monkeypatch.setattr(servicer, "_found", fail)
    with caplog.at_level(logging.ERROR, "tasks_app.grpc_api.statuses"):
        code, text = outcome(refused(client.debug))
    assert code is StatusCode.INTERNAL
    assert "secret" not in text
    assert text.rpartition(" ")[2].rstrip(".") in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_the_health_service_is_open(serving):
    with grpc.insecure_channel(serving.address) as channel:
        stub: Any = HealthStub(channel)
        answer = stub.Check(HealthCheckRequest())
    assert answer.status == HealthCheckResponse.SERVING


def services_told(serving, metadata=()) -> list[str]:
    """What reflection tells over a connection from the loopback, as one from a proxy on this machine is."""
    with grpc.insecure_channel(serving.address) as channel:
        stub: Any = ServerReflectionStub(channel)
        asked = stub.ServerReflectionInfo(iter([ServerReflectionRequest(list_services="")]), metadata=metadata)
        return [service.name for service in next(asked).list_services_response.service]


def test_reflection_needs_a_token_from_the_loopback_too(serving, connect):
    assert outcome(refused(services_told, serving))[0] is StatusCode.UNAUTHENTICATED
    assert services_told(serving, connect(Scope.READ)._metadata) == [reflection.SERVICE_NAME]


def test_reflection_needs_no_token_where_none_is_in_use(serving, settings):
    settings.TASKSTORE_NO_AUTH = True
    assert services_told(serving) == [reflection.SERVICE_NAME]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv4:192.0.2.1:5000", "192.0.2.1"),
        ("unix:", ""),
    ],
)
def test_it_knows_where_a_call_comes_from(peer, address):
    assert authentication._address(peer) == address
