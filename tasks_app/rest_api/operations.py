"""Bulk operations over REST: start one, preview it, follow it, cancel it, undo it."""

from __future__ import annotations

from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore import endpoints

from .. import bulk
from ..models import BulkItem, BulkOperation
from . import bodies
from .async_views import key_in
from .base import View, serves
from .bulk_requests import BulkPreviewRequest, BulkRequest
from .bulk_responses import ItemAnswer, ItemsAnswer, Links, OperationAnswer, OperationsAnswer, PreviewAnswer
from .requests import ReasonRequest
from .search import choice_in, integer, page_size_in, query_of


class Preview(View):
    @serves(endpoints.BULK_PREVIEW, PreviewAnswer, body=BulkPreviewRequest)
    def post(self, request: Request) -> Response:
        asked = bodies.read(request, BulkPreviewRequest)
        for group in asked.groups:
            self.must_reach(group)
        verb = bulk.Verb(asked.verb)
        seen = bulk.preview(asked.selection(self.scope()), verb, here=asked.here or False)
        return Response(PreviewAnswer.of(verb, seen))


class Bulk(View):
    @serves(endpoints.BULK, OperationAnswer, body=BulkRequest)
    def post(self, request: Request) -> Response:
        asked = bodies.read(request, BulkRequest)
        for group in asked.groups:
            self.must_reach(group)
        key = key_in(request, asked, f"bulk of token {self.token().pk}")
        return begun(bulk.start(asked.asked(self.scope(), self.by(), key)))


def begun(operation: BulkOperation) -> Response:
    location = {"Location": Links.of(operation).operation}
    return Response(OperationAnswer.of(operation), status=endpoints.BULK.status, headers=location)


class OperationsView(View):
    def visible(self) -> QuerySet[BulkOperation]:
        """All of them; to a token for some groups only what was begun with a token of its name, for these groups."""
        patterns = self.scope().patterns
        if patterns is None:
            return BulkOperation.objects.all()
        return BulkOperation.objects.filter(by=self.by(), selection__scope=list(patterns))

    def operation(self, id: str) -> BulkOperation:
        found = self.visible().filter(pk=integer("id", id)).first()
        if found is None:
            raise NotFound(f"There is no operation {id}.")
        return found


class Operations(OperationsView):
    @serves(endpoints.OPERATIONS, OperationsAnswer)
    def get(self, request: Request) -> Response:
        asked = query_of(request, endpoints.OPERATIONS)
        found = self.visible().order_by("-pk")
        if state := choice_in(asked, "state", endpoints.OPERATIONS):
            found = found.filter(state=state)
        if "after" in asked:
            found = found.filter(pk__lt=integer("after", asked["after"]))
        size = page_size_in(asked, endpoints.OPERATIONS)
        operations = list(found[: size + 1])
        return Response(
            OperationsAnswer(
                operations=tuple(map(OperationAnswer.in_list, operations[:size])),
                after=operations[size - 1].pk if len(operations) > size else None,
            )
        )


class OneOperation(OperationsView):
    @serves(endpoints.OPERATION, OperationAnswer)
    def get(self, request: Request, id: str) -> Response:
        return Response(OperationAnswer.of(self.operation(id)))


class Items(OperationsView):
    @serves(endpoints.OPERATION_ITEMS, ItemsAnswer)
    def get(self, request: Request, id: str) -> Response:
        asked = query_of(request, endpoints.OPERATION_ITEMS)
        found = BulkItem.objects.filter(operation=self.operation(id).pk).order_by("origin")
        if outcome := choice_in(asked, "outcome", endpoints.OPERATION_ITEMS):
            found = found.filter(outcome=outcome)
        if "after" in asked:
            found = found.filter(origin__gt=integer("after", asked["after"]))
        size = page_size_in(asked, endpoints.OPERATION_ITEMS)
        items = list(found.only("origin", "task", "outcome", "why")[: size + 1])
        return Response(
            ItemsAnswer(
                items=tuple(map(ItemAnswer.of, items[:size])),
                after=items[size - 1].origin if len(items) > size else None,
            )
        )


class Cancel(OperationsView):
    @serves(endpoints.CANCEL_OPERATION, OperationAnswer)
    def post(self, request: Request, id: str) -> Response:
        return Response(OperationAnswer.of(bulk.cancel(self.operation(id), by=self.by())))


class Undo(OperationsView):
    @serves(endpoints.UNDO_OPERATION, OperationAnswer, body=ReasonRequest)
    def post(self, request: Request, id: str) -> Response:
        operation, asked = self.operation(id), bodies.read(request, ReasonRequest)
        return begun(bulk.undo(operation, by=self.by(), reason=asked.reason, scope=self.scope()))
