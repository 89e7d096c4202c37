"""Bulk operations over REST: start one, preview it, follow it, cancel it, undo it."""

from __future__ import annotations

from collections.abc import Mapping

from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore.errors import InvalidInput

from .. import bulk
from ..access.policy import Action
from ..models import BulkItem, BulkOperation
from ..reading.listing import PAGE
from . import bodies
from .async_views import key_in
from .base import View
from .bulk_requests import BulkPreviewRequest, BulkRequest
from .bulk_responses import ItemAnswer, ItemsAnswer, Links, OperationAnswer, OperationsAnswer, PreviewAnswer
from .requests import ReasonRequest
from .schema import FAILURES, ID, KEY_REUSED, NOT_THERE, endpoint, path, query
from .search import integer, page_size_in, query_of

BEGUN = 202


class Preview(View):
    """How many tasks would be meant, and which. Nothing is changed."""

    needs = Action.OPERATE

    @endpoint("bulk_preview", answer=PreviewAnswer, body=BulkPreviewRequest)
    def post(self, request: Request) -> Response:
        asked = bodies.read(request, BulkPreviewRequest)
        for group in asked.groups:
            self.must_reach(group)
        verb = bulk.Verb(asked.verb)
        seen = bulk.preview(asked.selection(self.scope()), verb, here=asked.here or False)
        return Response(PreviewAnswer.of(verb, seen))


class Bulk(View):
    """Do it to the tasks of a preview, in the background.

    Refused when their number has changed by more than 10 and 1 %. A small operation may have ended when this answers:
    look at its `state`.
    """

    needs = Action.OPERATE

    @endpoint("bulk", answer=OperationAnswer, body=BulkRequest, failures=FAILURES | KEY_REUSED, status=BEGUN)
    def post(self, request: Request) -> Response:
        asked = bodies.read(request, BulkRequest)
        for group in asked.groups:
            self.must_reach(group)
        key = key_in(request, asked, f"bulk of token {self.token().pk}")
        return begun(bulk.start(asked.asked(self.actor.scope, key), self.actor.because(asked.reason)))


def begun(operation: BulkOperation) -> Response:
    return Response(OperationAnswer.of(operation), status=BEGUN, headers={"Location": Links.of(operation).operation})


MOST = 200

IN_PATH = [path("id", ID)]
PAGED = [
    query("after", ID, "Where the page before ended."),
    query("limit", {"type": "integer", "minimum": 1, "maximum": MOST, "default": PAGE}, "How many at most."),
]
STATE = query("state", {"type": "string", "enum": BulkOperation.State.values})
OUTCOME = query("outcome", {"type": "string", "enum": BulkItem.Outcome.values})


class OperationsView(View):
    needs = Action.OPERATE

    def visible(self) -> QuerySet[BulkOperation]:
        """All of them; to a token for some groups only what was begun with a token of its name, for these groups."""
        patterns = self.actor.scope.patterns
        if patterns is None:
            return BulkOperation.objects.all()
        return BulkOperation.objects.filter(by=self.actor.name, selection__scope=list(patterns))

    def operation(self, id: str) -> BulkOperation:
        found = self.visible().filter(pk=integer("id", id)).first()
        if found is None:
            raise NotFound(f"There is no operation {id}.")
        return found


class Operations(OperationsView):
    """Operations, the newest first. A token for some groups sees its own only."""

    @endpoint("operations", answer=OperationsAnswer, parameters=[STATE, *PAGED])
    def get(self, request: Request) -> Response:
        asked = query_of(request, "state", "after", "limit")
        found = self.visible().order_by("-pk")
        if "state" in asked:
            found = found.filter(state=choice("state", asked, BulkOperation.State.values))
        if "after" in asked:
            found = found.filter(pk__lt=integer("after", asked["after"]))
        size = page_size_in(asked, MOST)
        operations = list(found[: size + 1])
        return Response(
            OperationsAnswer(
                operations=tuple(map(OperationAnswer.in_list, operations[:size])),
                after=operations[size - 1].pk if len(operations) > size else None,
            )
        )


class OneOperation(OperationsView):
    """What was asked for, how far it has come, and whether it can be undone."""

    @endpoint("operation", answer=OperationAnswer, parameters=IN_PATH, failures=FAILURES | NOT_THERE)
    def get(self, request: Request, id: str) -> Response:
        return Response(OperationAnswer.of(self.operation(id)))


class Items(OperationsView):
    """What became of each task, and why it was skipped or failed."""

    @endpoint(
        "operation_items",
        answer=ItemsAnswer,
        parameters=[*IN_PATH, OUTCOME, *PAGED],
        failures=FAILURES | NOT_THERE,
    )
    def get(self, request: Request, id: str) -> Response:
        asked = query_of(request, "outcome", "after", "limit")
        found = BulkItem.objects.filter(operation=self.operation(id).pk).order_by("origin")
        if "outcome" in asked:
            found = found.filter(outcome=choice("outcome", asked, BulkItem.Outcome.values))
        if "after" in asked:
            found = found.filter(origin__gt=integer("after", asked["after"]))
        size = page_size_in(asked, MOST)
        items = list(found.only("origin", "task", "outcome", "why")[: size + 1])
        return Response(
            ItemsAnswer(
                items=tuple(map(ItemAnswer.of, items[:size])),
                after=items[size - 1].origin if len(items) > size else None,
            )
        )


class Cancel(OperationsView):
    """Let it end after what it is at. One that has ended stays as it is."""

    @endpoint("cancel_operation", answer=OperationAnswer, parameters=IN_PATH, failures=FAILURES | NOT_THERE)
    def post(self, request: Request, id: str) -> Response:
        return Response(OperationAnswer.of(bulk.cancel(self.operation(id), self.actor)))


class Undo(OperationsView):
    """Take it back, but for what has changed since: an operation of its own."""

    @endpoint(
        "undo_operation",
        answer=OperationAnswer,
        body=ReasonRequest,
        parameters=IN_PATH,
        failures=FAILURES | NOT_THERE,
        status=BEGUN,
    )
    def post(self, request: Request, id: str) -> Response:
        operation, asked = self.operation(id), bodies.read(request, ReasonRequest)
        return begun(bulk.undo(operation, self.actor.because(asked.reason)))


def choice(name: str, asked: Mapping[str, str], choices: list[str]) -> str:
    if asked[name] not in choices:
        raise InvalidInput({name: [f"one of {', '.join(choices)}"]})
    return asked[name]
