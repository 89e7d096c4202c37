"""The load generator's own gRPC, with a server of gRPC's."""

import asyncio

import grpc
import pytest

from lab.benchmarks import CannotMeasure
from lab.benchmarks.clients.http2 import MOST_BYTES, Connection
from taskstore.masstasker.masstasker_pb2 import QueryRequest, QueryResponse, Task
from taskstore.masstasker.masstasker_pb2_grpc import MassTaskerServicer, add_MassTaskerServicer_to_server

pytestmark = pytest.mark.once

QUERY = "/masstasker.MassTasker/Query"
OUTCOMES = {"nothing": grpc.StatusCode.NOT_FOUND, "paused": grpc.StatusCode.UNAVAILABLE}


class Servicer(MassTaskerServicer):
    """Answers with the group that it was asked for and who asks, or with a status."""

    async def Query(self, request, context):  # noqa: N802 - gRPC's name.
        if request.group in OUTCOMES:
            await context.abort(OUTCOMES[request.group], "so it is")
        caller = dict(context.invocation_metadata())["authorization"]
        return QueryResponse(task=Task(group=request.group, error=caller))


def ask(*groups):
    """What comes of these questions, one after the other on one connection."""

    async def talk():
        server = grpc.aio.server()
        add_MassTaskerServicer_to_server(Servicer(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        connection = await Connection.open(f"127.0.0.1:{port}", "ts_ann")
        try:
            return [await connection.call(QUERY, QueryRequest(group=group).SerializeToString()) for group in groups]
        finally:
            connection.close()
            await server.stop(None)

    return [answer and QueryResponse.FromString(answer).task for answer in asyncio.run(talk())]


def test_it_asks_as_who_it_is_as_often_as_it_likes():
    groups = ["mail", "reports", "x" * (MOST_BYTES - 100), "mail"]
    assert ask(*groups) == [Task(group=group, error="Bearer ts_ann") for group in groups]


def test_it_tells_nothing_from_a_refusal():
    assert ask("nothing", "mail")[0] is None
    with pytest.raises(CannotMeasure, match="refused"):
        ask("paused")
