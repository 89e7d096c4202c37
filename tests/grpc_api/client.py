"""A client that was made from MassTasker's definition, not from ours."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from grpc_status import rpc_status
from grpc_tools import protoc

PATIENCE_S = 30
DEFINITION = Path(__file__).with_name("theirs.proto")


@functools.cache
def theirs() -> Mapping[str, Any]:
    """The classes of the messages by name, in a pool of their own: ours have the same names."""
    well_known = files("grpc_tools") / "_proto"
    with tempfile.NamedTemporaryFile() as made:
        paths = [f"--proto_path={DEFINITION.parent}", f"--proto_path={well_known}"]
        assert protoc.main(["", *paths, "--include_imports", f"--descriptor_set_out={made.name}", DEFINITION.name]) == 0
        described = FileDescriptorSet.FromString(made.read())
    pool = DescriptorPool()
    for file in described.file:
        pool.Add(file)
    names = pool.FindFileByName(DEFINITION.name).message_types_by_name
    return {name: GetMessageClass(kind) for name, kind in names.items()}


def message(name: str, **fields: Any) -> Any:
    return theirs()[name](**fields)


def ref(**which: Any) -> Any:
    """A TaskRef: by id, group or labels."""
    if "labels" in which:
        which = {"selector": message("LabelSelector", labels=which["labels"])}
    return message("TaskRef", **which)


class Client:
    """Calls fail with grpc.RpcError."""

    def __init__(self, address: str, secret: str = "") -> None:
        self.address = address
        self._metadata = [("authorization", f"Bearer {secret}")] if secret else []
        self._channel = grpc.insecure_channel(address)

    def close(self) -> None:
        self._channel.close()

    def call(self, method: str, request: Any, timeout_s: float = PATIENCE_S) -> Any:
        return self._callable(method)(request, timeout=timeout_s, metadata=self._metadata)

    def begin(self, method: str, request: Any, timeout_s: float = PATIENCE_S) -> Any:
        """A call that is under way; `result()` is its answer."""
        return self._callable(method).future(request, timeout=timeout_s, metadata=self._metadata)

    def _callable(self, method: str) -> Any:
        return self._channel.unary_unary(
            f"/masstasker.MassTasker/{method}",
            # Also bytes that nobody should send.
            request_serializer=lambda request: request if isinstance(request, bytes) else request.SerializeToString(),
            response_deserializer=theirs()[f"{method}Response"].FromString,
        )

    def create(self, *groups: str, **fields: Any) -> list[int]:
        return self.update(created=[message("Task", group=group, **fields) for group in groups])

    def update(
        self, *, created: Iterable[Any] = (), deleted: Iterable[Any] = (), predicates: Iterable[int] = ()
    ) -> list[int]:
        """The ids of what was created. `deleted`: ids and refs."""
        refs = [ref(id=each) if isinstance(each, int) else each for each in deleted]
        request = message("UpdateRequest", created=created, deleted=refs, predicates=predicates)
        return list(self.call("Update", request).created_ids)

    def query(self, group: str, own_for_s: float = 0, timeout_s: float = PATIENCE_S, **asked: Any) -> Any:
        return self.call("Query", querying(group, own_for_s, **asked), timeout_s).task

    def debug(self, group: str = "", limit: int = 0) -> Any:
        return self.call("Debug", message("DebugRequest", group=group, limit=limit))

    def ids(self, group: str = "") -> list[int]:
        return sorted(task.id for task in self.debug(group).tasks)

    def bulk_set(self, *refs: Any, **prototype: Any) -> int:
        request = message("BulkSetRequest", ref=refs, prototype=message("Task", **prototype))
        return int(self.call("BulkSet", request).num_updated)


def querying(group: str, own_for_s: float = 0, **asked: Any) -> Any:
    request = message("QueryRequest", group=group, **asked)
    if own_for_s:
        request.own_for.FromNanoseconds(round(own_for_s * 1e9))
    return request


def outcome(error: Any) -> tuple[grpc.StatusCode, str]:
    """What a call ended with."""
    return error.code(), error.details()


def details(error: Any, kind: type[Message]) -> Any:
    """The part of the status that is of this kind; None where there is none."""
    status = rpc_status.from_call(error)
    for packed in status.details if status else ():
        found = kind()
        if packed.Unpack(found):
            return found
    return None


def wrong_fields(error: Any) -> list[str]:
    found = details(error, BadRequest)
    return [violation.field for violation in found.field_violations] if found else []


def reason(error: Any) -> str:
    found = details(error, ErrorInfo)
    return found.reason if found else ""


def retry_after_s(error: Any) -> int:
    found = details(error, RetryInfo)
    return found.retry_delay.seconds if found else 0
