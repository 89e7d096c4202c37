"""This store, over gRPC."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration

from taskstore.masstasker.masstasker_pb2 import QueryRequest, QueryResponse, Task, TaskRef, UpdateRequest

from .. import CannotMeasure
from ..pace import DATA, GROUP, LEASE_MS
from .http2 import MOST_BYTES, Connection
from .store import ADDER, StoreClient

QUERY, UPDATE = "/masstasker.MassTasker/Query", "/masstasker.MassTasker/Update"
CLAIM = QueryRequest(group=GROUP, own_for=Duration(seconds=LEASE_MS // 1_000)).SerializeToString()
TASK = Task(group=GROUP, data=Any(value=DATA))
AT_ONCE = MOST_BYTES // (2 * TASK.ByteSize())


class GrpcClient(StoreClient):
    """A connection for each client."""

    connections: dict[int, Connection]

    def prepare(self) -> None:
        """Nothing: the server has made the tables."""

    async def open(self, owners: Sequence[int]) -> None:
        [server] = self.where["servers"]
        self.connections = {owner: await Connection.open(server["grpc"], server["token"]) for owner in owners}

    async def close(self) -> None:
        for connection in self.connections.values():
            connection.close()

    async def claim(self, owner: int, wait_ms: int = 0) -> Sequence[int]:
        if wait_ms:
            raise CannotMeasure("this client does not wait")
        answer = await self.connections[owner].call(QUERY, CLAIM)
        return [] if answer is None else [QueryResponse.FromString(answer).task.id]

    async def finish(self, owner: int, tasks: Sequence[int]) -> None:
        await self._update(owner, UpdateRequest(deleted=[TaskRef(id=task_id) for task_id in tasks]))

    async def put(self, tasks: int) -> None:
        for start in range(0, tasks, AT_ONCE):
            await self._update(ADDER, UpdateRequest(created=[TASK] * min(AT_ONCE, tasks - start)))

    async def _update(self, owner: int, request: UpdateRequest) -> None:
        if await self.connections[owner].call(UPDATE, request.SerializeToString()) is None:
            raise CannotMeasure("the server did not know a task that it had given out")
