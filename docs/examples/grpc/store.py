"""A small client of the gRPC API for the other examples, over the stub that is generated from the definition."""

import os
import time

import grpc

from taskstore.masstasker.masstasker_pb2 import DebugRequest, QueryRequest, Task, TaskRef, UpdateRequest
from taskstore.masstasker.masstasker_pb2_grpc import MassTaskerStub

CALL_S = 60  # How long a call may take.


class Refused(Exception):
    """A task no longer exists, or another client holds it. Nothing was changed."""


class Store:
    """The store at an address on this machine, with the token of TASKSTORE_TOKEN."""

    def __init__(self, address="127.0.0.1:50053"):
        # A proxy of the environment can't reach this machine; how long a message may be is for the server to say.
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
        self._calls = MassTaskerStub(grpc.insecure_channel(address, options))
        self._token = [("authorization", f"Bearer {os.environ['TASKSTORE_TOKEN']}")]

    def query(self, group, lease_s=0.0, wait_s=0.0):
        """Claim a task for `lease_s`, or only read it, waiting up to `wait_s`. Returns None if there is none."""
        asked = QueryRequest(group=group, wait=wait_s > 0)
        asked.own_for.FromNanoseconds(int(lease_s * 10**9))
        try:
            return self._calls.Query(asked, timeout=wait_s or CALL_S, metadata=self._token).task
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DEADLINE_EXCEEDED):
                return None
            raise

    def commit(self, created=(), deleted=(), required=()):
        """Create and delete tasks if all `required` exist. Returns the new ids. Raises Refused."""
        asked = UpdateRequest(created=created, predicates=[task.id for task in required])
        asked.deleted.extend(TaskRef(id=task.id) for task in deleted)
        try:
            return self._calls.Update(asked, timeout=CALL_S, metadata=self._token).created_ids
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION):
                raise Refused(error.details()) from error
            raise

    def renew(self, task, lease_s):
        """Hold a claimed task for `lease_s` from now; 0 gives it back. It gets another id. Raises Refused."""
        renewed = Task()
        renewed.CopyFrom(task)
        renewed.not_before.FromNanoseconds(int((time.time() + lease_s) * 10**9))
        [task.id] = self.commit(created=[renewed], deleted=[task])

    def count(self, group):
        """Return the number of tasks in the group."""
        return self._calls.Debug(DebugRequest(group=group, limit=1), timeout=CALL_S, metadata=self._token).num_tasks


def new_task(group, data, **fields):
    """Return a task to create; `data` are bytes. `task.data.Pack(message)` would keep a message with its type."""
    task = Task(group=group, **fields)
    task.data.value = data
    return task
