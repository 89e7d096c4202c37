"""The four calls of MassTasker's interface (contract.md section 6): each only translates to the verbs."""

from __future__ import annotations

from typing import Any

from grpc.aio import ServicerContext

from ..masstasker import masstasker_pb2_grpc
from ..masstasker.masstasker_pb2 import (
    BulkSetRequest,
    BulkSetResponse,
    DebugRequest,
    DebugResponse,
    QueryRequest,
    QueryResponse,
    UpdateRequest,
    UpdateResponse,
)
from . import bulk_setting, debugging, querying, updating
from .authentication import caller

Context = ServicerContext[Any, Any]


class Servicer(masstasker_pb2_grpc.MassTaskerServicer):
    """Behind Authentication, which says who calls and turns what is raised here into a status."""

    async def Update(self, request: UpdateRequest, context: Context) -> UpdateResponse:
        """One all-or-nothing change under the condition that all predicates exist."""
        return await updating.update(request, caller())

    async def Query(self, request: QueryRequest, context: Context) -> QueryResponse:
        """Read a task of a group, or own it for a time."""
        return await querying.query(request, caller(), context)

    async def BulkSet(self, request: BulkSetRequest, context: Context) -> BulkSetResponse:
        """Change the same in every task that the refs match."""
        return await bulk_setting.bulk_set(request, caller())

    async def Debug(self, request: DebugRequest, context: Context) -> DebugResponse:
        """The tasks of a group, without taking one."""
        return await debugging.debug(request, caller())
