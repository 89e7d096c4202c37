"""The catalogue against gRPC: told what is wrong, nothing changed, and the connection is of use afterwards."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from tests.grpc_api.client import message, theirs, wrong_fields

from .catalogue import expanded, table
from .store import everything, secret_of, three_tasks

PATIENCE_S = 60
CALLS = table("grpc")["calls"]


@pytest.mark.parametrize("case", CALLS, ids=[case["it"] for case in CALLS])
def test_it_is_told_what_is_wrong_and_changes_nothing(grpc_channel, case):
    ids, secret = three_tasks(), secret_of(case.get("as", "operator"))
    before = everything()
    with pytest.raises(grpc.RpcError) as refused:
        call(grpc_channel, case["call"], request_of(case, ids), secret)
    assert refused.value.code().name == case["code"], refused.value.details()
    assert wrong_fields(refused.value) == case.get("names", [])
    assert everything() == before
    assert len(call(grpc_channel, "Debug", b"", secret_of("reader")).tasks) == 3


def request_of(case: dict[str, Any], ids: dict[str, int]) -> bytes:
    if "hex" in case:
        body: bytes = bytes.fromhex(case["hex"]) * case.get("times", 1)
        return body
    asked: bytes = message(f"{case['call']}Request", **expanded(case["request"], ids)).SerializeToString()
    return asked


def call(channel: grpc.Channel, method: str, request: bytes, secret: str) -> Any:
    answer = theirs().get(f"{method}Response")
    ask: Any = channel.unary_unary(
        f"/masstasker.MassTasker/{method}", response_deserializer=answer.FromString if answer else None
    )
    return ask(request, timeout=PATIENCE_S, metadata=[("authorization", f"Bearer {secret}")] if secret else [])
