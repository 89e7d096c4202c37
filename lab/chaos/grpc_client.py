"""One of many clients that use servers at random through gRPC, and record requests like those over HTTP.

    python -m lab.chaos.grpc_client '{"addresses": ["127.0.0.1:50053"], "token": ..., ...}'

What is asked is noted as the same request over HTTP would be. To the store all clients of gRPC are one: number 0.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from time import sleep
from typing import IO, Any

import grpc
from google.protobuf.any_pb2 import Any as Data
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from taskstore.masstasker.masstasker_pb2 import QueryRequest, Task, TaskRef, UpdateRequest
from taskstore.masstasker.masstasker_pb2_grpc import MassTaskerStub

from .client import AWAY_S, GROUPS, Client, Note, Orders, run

EVERYBODY = 0
# In the details of a refusal, and in the answers over HTTP.
REASONS = {"deleted": "deletes", "predicates": "depends", "owned": "owned"}


class GrpcClient(Client):
    def __init__(self, orders: Orders, notes: IO[str]) -> None:
        super().__init__(orders, notes)
        self.name, self.number = f"grpc-{orders.number}", EVERYBODY
        self.channel: grpc.Channel | None = None

    def unique(self) -> str:
        self.added += 1
        return f"{self.name}/{self.added}"

    # ---- What a client does

    def new_task(self) -> dict[str, Any]:
        return {"group": self.chance.choice(GROUPS), "data": self.unique()}

    def keyed_task(self) -> dict[str, Any]:
        """Return a new task: MassTasker's messages have no keys."""
        return self.new_task()

    def claim(self) -> None:
        duration_ms = self.chance.choice([1, 50, 500, 5_000])
        answer = self.post("/claim", group=self.chance.choice(GROUPS), duration=duration_ms, limit=1)
        self.held += answer["tasks"] if answer else []

    def work(self) -> None:
        if not self.held:
            return
        task_id = self.held.pop(self.chance.randrange(len(self.held)))["id"]
        successor = {**self.new_task(), "id": task_id}
        asked = self.chance.choice([{}, {"adds": [self.new_task()]}, {"adds": [successor]}])
        self.post("/update", deletes=[task_id], depends=self.some_known(1), **asked)

    def interfere(self) -> None:
        adds = [self.new_task()] if self.chance.random() < 0.5 else []
        self.post("/update", deletes=self.some_known(self.chance.randint(1, 4)), adds=adds, depends=self.some_known(1))

    def look(self) -> None:
        """Those over HTTP do that."""

    # ---- How

    def reach(self) -> Any:
        if self.channel is None:
            address = self.orders.addresses[self.server % len(self.orders.addresses)]
            host, _, port = address.partition(":")
            try:
                socket.create_connection((host, int(port)), timeout=self.orders.patience_s).close()
            except OSError:
                self.server += 1
                sleep(AWAY_S)
                return None
            self.channel = grpc.insecure_channel(address)
        return MassTaskerStub(self.channel)

    def hang_up(self) -> None:
        if self.channel:
            self.channel.close()
        self.channel = None
        self.server += 1

    def send(self, stub: Any, method: str, path: str, body: Any) -> Note:
        call = self.query if path == "/claim" else self.update
        try:
            return {"status": 200, "answer": {"tasks": call(stub, body), "error": None}}
        except grpc.RpcError as problem:
            return noted(path, problem)

    def query(self, stub: Any, body: Any) -> list[Note]:
        asked = QueryRequest(group=body["group"], own_for=timedelta(milliseconds=body["duration"]))
        return [shown(stub.Query(asked, **self.options).task)]

    def update(self, stub: Any, body: Any) -> list[Note]:
        created = [Task(group=add["group"], data=as_data(add), id=add.get("id", 0)) for add in body.get("adds", [])]
        deleted = [TaskRef(id=task_id) for task_id in body["deletes"]] if "deletes" in body else []
        asked = UpdateRequest(created=created, deleted=deleted, predicates=body.get("depends", []))
        ids = stub.Update(asked, **self.options).created_ids
        for task, task_id in zip(created, ids, strict=True):
            task.id = task_id
        return [{**shown(task), "timespec": None} for task in created]

    @property
    def options(self) -> dict[str, Any]:
        metadata = (("authorization", f"Bearer {self.orders.token}"),)
        return {"timeout": self.orders.patience_s, "metadata": metadata}


def as_data(add: Note) -> Data:
    return Data(value=add["data"].encode())


def shown(task: Task) -> Note:
    """Return a task as over HTTP, as far as the message contains it. The rest is taken from the tables."""
    return {
        "id": task.id,
        "group": task.group,
        "data": task.data.value.decode(),
        "timespec": task.not_before.ToMilliseconds(),
        "ownerid": EVERYBODY,
        "error": task.error,
        "labels": dict(task.labels),
    }


def noted(path: str, problem: Any) -> Note:
    """Return a refusal as over HTTP. Raises OSError if the outcome is unknown."""
    info = reason_of(problem)
    if problem.code() is grpc.StatusCode.NOT_FOUND and path == "/claim":
        return {"status": 200, "answer": {"tasks": [], "error": None}}
    if info.reason == "refused":
        named = {name: ids_in(info.metadata.get(word, "")) for word, name in REASONS.items()}
        return {"status": 200, "answer": {"tasks": [], "error": named}}
    if problem.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED) and not info.reason:
        raise ConnectionError(problem.details()) from problem
    if problem.code() is grpc.StatusCode.UNAVAILABLE:
        return {"status": 503, "answer": {"detail": problem.details(), "code": info.reason}, "retry_after": "told"}
    return {"status": 500, "answer": {"detail": f"{problem.code().name}: {problem.details()}"}}


def reason_of(problem: Any) -> ErrorInfo:
    info = ErrorInfo()
    status = rpc_status.from_call(problem)
    for detail in status.details if status else ():
        detail.Unpack(info)  # Unpacks only a matching type.
    return info


def ids_in(text: str) -> list[int]:
    return [int(word) for word in text.split(", ") if word.isdecimal()]


if __name__ == "__main__":
    run(GrpcClient)
