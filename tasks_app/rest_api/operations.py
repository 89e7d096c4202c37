"""Bulk operations over REST: start one, preview it, follow it, cancel it, undo it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from msgspec import UNSET
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore import endpoints
from taskstore.types.bulk import (
    BulkParameters,
    BulkPreviewRequest,
    BulkRequest,
    ByState,
    Item,
    ItemOutcome,
    ItemsPage,
    Links,
    Operation,
    OperationsPage,
    OperationState,
    OperationVerb,
    SelectedTasks,
    Target,
    WithClaimed,
)
from taskstore.types.bulk import Preview as PreviewAnswer
from taskstore.types.bulk_actions import OPTIONS
from taskstore.types.requests import ReasonRequest
from taskstore.types.tasks import State

from .. import bulk
from ..core.operations import GroupScope
from ..models import BulkItem, BulkOperation
from . import bodies
from .base import View, key_header, resend_key, serves
from .search import choice_in, integer, page_size_in, query_of


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


def action_in(asked: SelectedTasks) -> bulk.Action:
    return bulk.action_named(asked.verb)(**asked.options)


def selection_in(asked: SelectedTasks, scope: GroupScope) -> bulk.Selection:
    return bulk.Selection(
        group=asked.group or "",
        state=asked.state or None,
        q=asked.q,
        ids=None if asked.ids is UNSET else tuple(dict.fromkeys(asked.ids)),
        scope=scope,
    )


class Preview(View):
    @serves(endpoints.BULK_PREVIEW)
    def post(self, request: Request) -> Response:
        asked = bodies.read(request, BulkPreviewRequest)
        if asked.group is not UNSET:
            self.must_reach(asked.group)
        action = action_in(asked)
        seen = bulk.preview(selection_in(asked, self.actor.scope), action)
        bulk.refuse_forbidden(seen, action, self.actor)
        return Response(preview_answer(action, seen))


class Bulk(View):
    @serves(endpoints.BULK)
    def post(self, request: Request) -> Response:
        asked = bodies.read(request, BulkRequest)
        action = replace(action_in(asked), takes_claimed=asked.claimed is WithClaimed.TAKE)
        for group in (asked.group, action.to_group):
            if group:
                self.must_reach(group)
        confirmed = bulk.Asked(
            action=action,
            selection=replace(selection_in(asked, self.actor.scope), bound=asked.bound, as_of_ms=asked.as_of),
            expected=asked.expected,
            typed=asked.typed,
            key=resend_key(key_header(request), asked, f"bulk of token {self.token().pk}"),
        )
        return begun(bulk.start(confirmed, self.actor.because(asked.reason)))


def begun(operation: BulkOperation) -> Response:
    answer = whole_answer(operation)
    return Response(answer, status=endpoints.BULK.status, headers={"Location": answer.links.operation})


class OperationsView(View):
    def visible(self) -> QuerySet[BulkOperation]:
        """All of them; to a token for some groups only what was begun with a token of its name, for these groups."""
        patterns = self.actor.scope.patterns
        if patterns is None:
            return BulkOperation.objects.all()
        return BulkOperation.objects.filter(by=self.actor.name, selection__scope=list(patterns))

    def operation(self, id: str) -> BulkOperation:
        found = self.visible().filter(pk=integer("id", id)).first()
        if found is None:
            raise NotFound(f"Operation {id} does not exist.")
        return found


class Operations(OperationsView):
    @serves(endpoints.OPERATIONS)
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
            OperationsPage(
                operations=tuple(map(answer_of, operations[:size])),
                after=operations[size - 1].pk if len(operations) > size else None,
            )
        )


class OneOperation(OperationsView):
    @serves(endpoints.OPERATION)
    def get(self, request: Request, id: str) -> Response:
        return Response(whole_answer(self.operation(id)))


class Items(OperationsView):
    @serves(endpoints.OPERATION_ITEMS)
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
            ItemsPage(
                items=tuple(map(item_answer, items[:size])),
                after=items[size - 1].origin if len(items) > size else None,
            )
        )


class Cancel(OperationsView):
    @serves(endpoints.CANCEL_OPERATION)
    def post(self, request: Request, id: str) -> Response:
        return Response(whole_answer(bulk.cancel(self.operation(id), self.actor)))


class Undo(OperationsView):
    @serves(endpoints.UNDO_OPERATION)
    def post(self, request: Request, id: str) -> Response:
        operation, asked = self.operation(id), bodies.read(request, ReasonRequest)
        return begun(bulk.undo(operation, self.actor.because(asked.reason)))
