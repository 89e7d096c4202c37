"""Bulk operations over REST: start one, preview it, follow it, cancel it, undo it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore.errors import InvalidInput
from taskstore.types.bulk import (
    BulkParameters,
    ByState,
    Item,
    ItemOutcome,
    ItemsPage,
    Links,
    Operation,
    OperationsPage,
    OperationState,
    OperationVerb,
    Target,
    WithClaimed,
)
from taskstore.types.bulk import Preview as PreviewAnswer
from taskstore.types.bulk_actions import OPTIONS
from taskstore.types.tasks import State

from .. import bulk
from ..access.policy import Action
from ..models import BulkItem, BulkOperation
from ..reading.listing import PAGE
from . import bodies
from .async_views import key_in
from .base import View
from .bulk_requests import BulkPreviewRequest, BulkRequest
from .requests import ReasonRequest
from .schema import FAILURES, ID, KEY_REUSED, NOT_THERE, endpoint, path, query
from .search import integer, page_size_in, query_of

BEGUN = 202


def preview_answer(action: bulk.Action, seen: bulk.Preview) -> PreviewAnswer:
    targets = tuple(Target(group=each.group, count=each.count, claimed=each.claimed) for each in seen.targets)
    return PreviewAnswer(
        count=seen.count,
        by_state=ByState(**{state.value: number for state, number in seen.by_state.items()}),
        claimed=seen.by_state[State.CLAIMED],
        ready_already=seen.ready_already,
        group=seen.group,
        samples=tuple(seen.samples),
        bound=seen.selection.bound,
        as_of=seen.selection.as_of_ms,
        to_type=bulk.to_type(action.words, seen),
        targets=targets if action.makes_available else None,
        ended=seen.ended if action.makes_available else None,
    )


def answer_of(operation: BulkOperation, **more: Any) -> Operation:
    """Return an operation as a list has it."""
    kept = operation.parameters
    options = {name: kept.get(name, option.default) for name, option in OPTIONS.items()}
    claimed = WithClaimed.TAKE if kept.get("takes_claimed") else WithClaimed.SKIP
    names = {
        "operation": "operation",
        "items": "operation_items",
        "cancel": "cancel_operation",
        "undo": "undo_operation",
    }
    return Operation(
        id=operation.pk,
        verb=OperationVerb(operation.verb),
        selection=operation.in_words,
        group=operation.group,
        parameters=BulkParameters(**options, claimed=claimed),
        state=OperationState(operation.state),
        expected=operation.expected,
        done=operation.done,
        skipped=operation.skipped,
        failed=operation.failed,
        gone=operation.gone,
        by=operation.by,
        reason=operation.reason,
        began_at_ms=operation.began_at_ms,
        ended_at_ms=operation.ended_at_ms,
        cancelled_by=operation.cancelled_by,
        undoes=operation.undoes,
        links=Links(**{link: reverse(f"rest_api:{name}", args=[operation.pk]) for link, name in names.items()}),
        **more,
    )


def whole_answer(operation: BulkOperation) -> Operation:
    """Return an operation with what takes a look of its own into the database."""
    why_not = bulk.why_not_undoable(operation)
    reasons = bulk.reasons(operation.pk, operation.gone)
    return answer_of(operation, reasons=reasons, undoable=not why_not, not_undoable=why_not)


def item_answer(item: BulkItem) -> Item:
    return Item(origin=item.origin, task=item.task, outcome=ItemOutcome(item.outcome), why=item.why)


class Preview(View):
    """How many tasks would be meant, and which. Nothing is changed."""

    needs = Action.OPERATE

    @endpoint("bulk_preview", answer=PreviewAnswer, body=BulkPreviewRequest)
    def post(self, request: Request) -> Response:
        asked = bodies.read(request, BulkPreviewRequest)
        for group in asked.groups:
            self.must_reach(group)
        action = asked.action
        return Response(preview_answer(action, bulk.preview(asked.selection(self.actor.scope), action)))


class Bulk(View):
    """Do it to the tasks of a preview, in the background.

    Refused when their number has changed by more than 10 and 1 %. A small operation may have ended when this answers:
    look at its `state`.
    """

    needs = Action.OPERATE

    @endpoint("bulk", answer=Operation, body=BulkRequest, failures=FAILURES | KEY_REUSED, status=BEGUN)
    def post(self, request: Request) -> Response:
        asked = bodies.read(request, BulkRequest)
        for group in asked.groups:
            self.must_reach(group)
        key = key_in(request, asked, f"bulk of token {self.token().pk}")
        return begun(bulk.start(asked.asked(self.actor.scope, key), self.actor.because(asked.reason)))


def begun(operation: BulkOperation) -> Response:
    answer = whole_answer(operation)
    return Response(answer, status=BEGUN, headers={"Location": answer.links.operation})


MOST = 200

IN_PATH = [path("id", ID)]
PAGED = [
    query("after", ID, "Where the page before ended."),
    query("limit", {"type": "integer", "minimum": 1, "maximum": MOST, "default": PAGE}, "How many at most."),
]
STATE = query("state", {"type": "string", "enum": [*OperationState]})
OUTCOME = query("outcome", {"type": "string", "enum": [*ItemOutcome]})


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

    @endpoint("operations", answer=OperationsPage, parameters=[STATE, *PAGED])
    def get(self, request: Request) -> Response:
        asked = query_of(request, "state", "after", "limit")
        found = self.visible().order_by("-pk")
        if "state" in asked:
            found = found.filter(state=choice("state", asked, [*OperationState]))
        if "after" in asked:
            found = found.filter(pk__lt=integer("after", asked["after"]))
        size = page_size_in(asked, MOST)
        operations = list(found[: size + 1])
        return Response(
            OperationsPage(
                operations=tuple(map(answer_of, operations[:size])),
                after=operations[size - 1].pk if len(operations) > size else None,
            )
        )


class OneOperation(OperationsView):
    """What was asked for, how far it has come, and whether it can be undone."""

    @endpoint("operation", answer=Operation, parameters=IN_PATH, failures=FAILURES | NOT_THERE)
    def get(self, request: Request, id: str) -> Response:
        return Response(whole_answer(self.operation(id)))


class Items(OperationsView):
    """What became of each task, and why it was skipped or failed."""

    @endpoint(
        "operation_items",
        answer=ItemsPage,
        parameters=[*IN_PATH, OUTCOME, *PAGED],
        failures=FAILURES | NOT_THERE,
    )
    def get(self, request: Request, id: str) -> Response:
        asked = query_of(request, "outcome", "after", "limit")
        found = BulkItem.objects.filter(operation=self.operation(id).pk).order_by("origin")
        if "outcome" in asked:
            found = found.filter(outcome=choice("outcome", asked, [*ItemOutcome]))
        if "after" in asked:
            found = found.filter(origin__gt=integer("after", asked["after"]))
        size = page_size_in(asked, MOST)
        items = list(found.only("origin", "task", "outcome", "why")[: size + 1])
        return Response(
            ItemsPage(
                items=tuple(map(item_answer, items[:size])),
                after=items[size - 1].origin if len(items) > size else None,
            )
        )


class Cancel(OperationsView):
    """Let it end after what it is at. One that has ended stays as it is."""

    @endpoint("cancel_operation", answer=Operation, parameters=IN_PATH, failures=FAILURES | NOT_THERE)
    def post(self, request: Request, id: str) -> Response:
        return Response(whole_answer(bulk.cancel(self.operation(id), self.actor)))


class Undo(OperationsView):
    """Take it back, but for what has changed since: an operation of its own."""

    @endpoint(
        "undo_operation",
        answer=Operation,
        body=ReasonRequest,
        parameters=IN_PATH,
        failures=FAILURES | NOT_THERE,
        status=BEGUN,
    )
    def post(self, request: Request, id: str) -> Response:
        operation, asked = self.operation(id), bodies.read(request, ReasonRequest)
        return begun(bulk.undo(operation, self.actor.because(asked.reason)))


def choice(name: str, asked: Mapping[str, str], choices: Sequence[str]) -> str:
    if asked[name] not in choices:
        raise InvalidInput({name: [f"one of {', '.join(choices)}"]})
    return asked[name]
