"""What operators do over REST: bulk operations, and the audit log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from rest_framework.exceptions import NotFound

from taskstore import endpoints
from taskstore.types import bulk
from taskstore.types.bulk import Preview as PreviewAnswer
from taskstore.types.history import AuditFileRequest, AuditPage
from taskstore.types.requests import ById, ReasonById
from taskstore.types.tasks import State

from .. import bulk as verbs
from ..core.operations import GroupScope
from ..models import BulkItem, BulkOperation
from ..offload.threads import streamed
from ..reading import audit as entries
from ..reading.exporting import MEDIA_TYPES, Format
from .answers import ENCODER
from .base import Who, serves

LINKS = {"operation": "operation", "items": "operation_items", "cancel": "cancel_operation", "undo": "undo_operation"}
COPIED = (
    *("group", "expected", "done", "skipped", "failed", "gone", "by", "reason", "began_at_ms", "ended_at_ms"),
    *("cancelled_by", "undoes"),
)


def preview_answer(action: verbs.Action, seen: verbs.Preview) -> PreviewAnswer:
    targets = tuple(bulk.Target(group=each.group, count=each.count, claimed=each.claimed) for each in seen.targets)
    return PreviewAnswer(
        count=seen.count,
        by_state=bulk.ByState(**{state.value: number for state, number in seen.by_state.items()}),
        claimed=seen.by_state[State.CLAIMED],
        ready_already=seen.ready_already,
        group=seen.group,
        samples=tuple(seen.samples),
        bound=seen.selection.bound,
        as_of=seen.selection.as_of_ms,
        to_type=verbs.to_type(action.words, seen),
        targets=targets if action.makes_available else None,
        closes=tuple(seen.closes),
        ended=seen.ended if action.makes_available else None,
    )


def answer_of(operation: BulkOperation, **more: Any) -> bulk.Operation:
    """Return an operation as a list has it."""
    kept = operation.parameters
    options = {name: kept.get(name, option.default) for name, option in bulk.OPTIONS.items()}
    claimed = bulk.WithClaimed.TAKE if kept.get("takes_claimed") else bulk.WithClaimed.SKIP
    return bulk.Operation(
        id=operation.pk,
        verb=bulk.OperationVerb(operation.verb),
        selection=operation.in_words,
        parameters=bulk.BulkParameters(**options, claimed=claimed),
        state=bulk.OperationState(operation.state),
        **{name: getattr(operation, name) for name in COPIED},
        links=bulk.Links(**{link: reverse(f"rest_api:{name}", args=[operation.pk]) for link, name in LINKS.items()}),
        **more,
    )


def whole_answer(operation: BulkOperation) -> bulk.Operation:
    """Return an operation with what takes a look of its own into the database."""
    why_not = verbs.why_not_undoable(operation)
    reasons = verbs.reasons(operation.pk, operation.gone)
    return answer_of(operation, reasons=reasons, undoable=not why_not, not_undoable=why_not)


def item_answer(item: BulkItem) -> bulk.Item:
    return bulk.Item(origin=item.origin, task=item.task, outcome=bulk.ItemOutcome(item.outcome), why=item.why)


def action_in(asked: bulk.SelectedTasks) -> verbs.Action:
    return verbs.action_named(asked.verb)(**asked.options)


def selection_in(asked: bulk.SelectedTasks, scope: GroupScope) -> verbs.Selection:
    return verbs.Selection(
        group=asked.group or "",
        state=asked.state,
        q=asked.q,
        ids=None if asked.ids is None else tuple(dict.fromkeys(asked.ids)),
        scope=scope,
    )


@serves(endpoints.BULK_PREVIEW)
def preview(asked: bulk.SelectedTasks, who: Who) -> PreviewAnswer:
    who.must_reach(*([asked.group] if asked.group else []))
    action = action_in(asked)
    seen = verbs.preview(selection_in(asked, who.actor.scope), action)
    verbs.refuse_forbidden(seen, action, who.actor)
    return preview_answer(action, seen)


@serves(endpoints.BULK)
def start(asked: bulk.AgreedTasks, who: Who) -> HttpResponse:
    action = replace(action_in(asked), takes_claimed=asked.claimed is bulk.WithClaimed.TAKE)
    who.must_reach(*filter(None, [asked.group, action.to_group]))
    confirmed = verbs.Asked(
        action=action,
        selection=replace(selection_in(asked, who.actor.scope), bound=asked.bound, as_of_ms=asked.as_of),
        expected=asked.expected,
        typed=asked.typed,
        key=who.key_of(asked, f"bulk of token {who.token.pk}"),
    )
    return begun(verbs.start(confirmed, who.actor.because(asked.reason)))


def begun(operation: BulkOperation) -> HttpResponse:
    answer = whole_answer(operation)
    headers = {"Location": answer.links.operation}
    return HttpResponse(ENCODER.encode(answer), endpoints.JSON, endpoints.BULK.status, headers=headers)


def visible(who: Who) -> QuerySet[BulkOperation]:
    """All of them; to a token for some groups only what was begun with a token of its name, for these groups."""
    patterns = who.actor.scope.patterns
    if patterns is None:
        return BulkOperation.objects.all()
    return BulkOperation.objects.filter(by=who.actor.name, selection__scope=list(patterns))


def one(operation_id: int, who: Who) -> BulkOperation:
    found = visible(who).filter(pk=operation_id).first()
    if found is None:
        raise NotFound(f"Operation {operation_id} does not exist.")
    return found


@serves(endpoints.OPERATIONS)
def operations(asked: bulk.OperationsRequest, who: Who) -> bulk.OperationsPage:
    found = visible(who).order_by("-pk")
    if asked.state:
        found = found.filter(state=asked.state)
    if asked.after is not None:
        found = found.filter(pk__lt=asked.after)
    page = list(found[: asked.limit + 1])
    after = page[asked.limit - 1].pk if len(page) > asked.limit else None
    return bulk.OperationsPage(operations=tuple(map(answer_of, page[: asked.limit])), after=after)


@serves(endpoints.OPERATION)
def operation(asked: ById, who: Who) -> bulk.Operation:
    return whole_answer(one(asked.id, who))


@serves(endpoints.OPERATION_ITEMS)
def items(asked: bulk.ItemsRequest, who: Who) -> bulk.ItemsPage:
    found = BulkItem.objects.filter(operation=one(asked.id, who).pk).order_by("origin")
    if asked.outcome:
        found = found.filter(outcome=asked.outcome)
    if asked.after is not None:
        found = found.filter(origin__gt=asked.after)
    page = list(found.only("origin", "task", "outcome", "why")[: asked.limit + 1])
    after = page[asked.limit - 1].origin if len(page) > asked.limit else None
    return bulk.ItemsPage(items=tuple(map(item_answer, page[: asked.limit])), after=after)


@serves(endpoints.CANCEL_OPERATION)
def cancel(asked: ById, who: Who) -> bulk.Operation:
    return whole_answer(verbs.cancel(one(asked.id, who), who.actor))


@serves(endpoints.UNDO_OPERATION)
def undo(asked: ReasonById, who: Who) -> HttpResponse:
    return begun(verbs.undo(one(asked.id, who), who.actor.because(asked.reason)))


@serves(endpoints.AUDIT)
def audit(asked: AuditFileRequest, who: Who) -> AuditPage | StreamingHttpResponse:
    wanted = entries.Wanted.read({name: getattr(asked, name) for name in entries.FIELDS})
    who.must_reach(*([wanted.group] if wanted.group else []))
    if asked.format:
        form = Format(asked.format)
        return streamed(who.request, entries.file_of(wanted, form, who.scope), MEDIA_TYPES[form])
    page = entries.page_of(wanted, after=entries.cursor(asked.after), scope=who.scope, limit=asked.limit)
    return AuditPage(entries=tuple(map(entries.as_answer, page.entries)), after=str(page.after) if page.after else None)
