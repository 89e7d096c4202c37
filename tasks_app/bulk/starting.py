"""Start an operation that somebody has seen the preview of, stop it early, and undo it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from django.db import IntegrityError, transaction

from taskstore.errors import Forbidden, KeyReused, refuse
from taskstore.types.bulk_actions import UNDO, BulkAction
from taskstore.types.tasks import Problem

from ..access import audit
from ..conf.retention import UNDO_DAYS
from ..core.actors import PROGRAM, Actor
from ..core.operations import ResendKey
from ..models import BulkOperation, KeptAnswer, Task
from .actions import Action
from .chunks import why_not, why_not_into
from .running import run
from .selection import Preview, Selection, preview

NEEDS_TYPED_NAME_ABOVE = 1_000
SOME_DRIFT = 10  # Tasks that may have come or gone since the preview, whatever the number.
DAY_MS = 24 * 60 * 60_000
AT_ONCE_S = 0.3  # Small ones are done before whoever asks has an answer.


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody has seen in a preview and agreed to."""

    action: Action
    selection: Selection  # As the preview bound it.
    expected: int  # The number of tasks that the preview showed.
    typed: str = ""  # See `to_type`.
    key: ResendKey | None = None  # Asked again with the same key, it is not begun again.


def start(asked: Asked, actor: Actor = PROGRAM) -> BulkOperation:
    """Begin, and do as much as goes at once. Look at its `state` for whether that was all.

    Raises InvalidInput when what is asked makes no sense, or when the number is not that of the preview any more,
    Forbidden when the group that all are in, or that they go to, may not be changed, and KeyReused when the key came
    with something else.
    """
    if asked.key and (begun := _begun_with(asked.key)):
        return begun
    refuse([*actor.problems(), *_wrong_binding(asked.selection)])
    selection, scope = replace(asked.selection, scope=actor.scope), actor.scope
    seen = preview(selection, asked.action)
    actor.must_change(seen.group)
    if seen.count == 1 and (why := why_not(Task.objects.get(id=seen.samples[0]), scope)):
        raise Forbidden(why)
    # Of several targets it leaves alone what goes to those that may not be changed.
    targets = [target.group for target in seen.targets] if len(seen.targets) == 1 else [asked.action.to_group]
    for group in filter(None, targets):
        if why := why_not_into(group, scope):
            raise Forbidden(why)
    refuse(list(asked.action.problems(seen.group)))
    refuse([*_drift(asked, seen), *_not_typed(asked, seen)])
    return _begin(
        BulkOperation(
            verb=asked.action.words.name,
            parameters=asked.action.as_json,
            selection=seen.selection.as_json,
            in_words=selection.in_words,
            group=seen.group,
            expected=asked.expected,
            by=actor.name,
            reason=actor.reason,
        ),
        asked.key,
    )


def to_type(words: BulkAction, seen: Preview) -> str:
    """What has to be typed before it is done: the group, or the number where several are meant; empty: nothing."""
    if not words.is_destructive or not (seen.selection.is_whole_group or seen.count > NEEDS_TYPED_NAME_ABOVE):
        return ""
    return seen.group or str(seen.count)


def cancel(operation: BulkOperation, actor: Actor) -> BulkOperation:
    """Let it end before its next chunk. Nothing happens to one that has ended."""
    waiting = BulkOperation.objects.filter(pk=operation.pk, state=BulkOperation.State.RUNNING, cancelled_by="")
    if waiting.update(cancelled_by=actor.name):
        audit.record(actor, "cancel", selection=f"operation {operation.pk}", group=operation.group, done=1)
        run(operation.pk, seconds=0)
    return BulkOperation.objects.get(pk=operation.pk)


def undo(operation: BulkOperation, actor: Actor = PROGRAM) -> BulkOperation:
    """Begin to take back what it did, but for what has changed since.

    Raises InvalidInput about `operation` when it can't be undone, which says why, and Forbidden when the group that all
    were in, or went to, may not be changed.
    """
    for group in (operation.group, operation.parameters.get("to", "")):
        actor.must_change(group)
    with transaction.atomic():
        # Two undos at the same moment would bring each task back twice.
        BulkOperation.objects.select_for_update().get(pk=operation.pk)
        refuse([*actor.problems(), *_not_undoable(operation)])
        undo = _kept(
            BulkOperation(
                verb=UNDO.name,
                # With the groups that it is for.
                selection={**operation.selection, "no_commands_because": actor.scope.no_commands_because},
                in_words=f"operation {operation.pk}: {operation.verb} of {operation.in_words}",
                group=operation.group,
                expected=operation.done,
                undoes=operation.pk,
                by=actor.name,
                reason=actor.reason,
            )
        )
    return _at_once(undo)


def why_not_undoable(operation: BulkOperation) -> str:
    """Why an operation can't be undone, as a clause; empty when it can."""
    if operation.undoes:
        return "an undo can't be undone"
    if operation.ended_at_ms is None:
        return "a running operation can't be undone: cancel it first"
    if not operation.done:
        return "it changed nothing, so there is nothing to undo"
    if operation.ended_at_ms < Task.objects.now_ms() - UNDO_DAYS * DAY_MS:
        return f"it can't be undone more than {UNDO_DAYS} days after its end"
    if BulkOperation.objects.filter(undoes=operation.pk).exclude(state=BulkOperation.State.CANCELLED).exists():
        return "it was already undone"
    return ""


def _not_undoable(operation: BulkOperation) -> list[Problem]:
    why = why_not_undoable(operation)
    return [("operation", why)] if why else []


def _begin(operation: BulkOperation, key: ResendKey | None) -> BulkOperation:
    try:
        with transaction.atomic():
            _kept(operation)
            if key:
                answer = {"at_ms": operation.began_at_ms, "answer": str(operation.pk), "ids": ""}
                KeptAnswer.objects.create(key=key.key, digest=key.digest, **answer)
    except IntegrityError:  # The same request came twice at the same moment.
        if key and (begun := _begun_with(key)):
            return begun
        raise
    return _at_once(operation)


def _begun_with(key: ResendKey) -> BulkOperation | None:
    """What a request with this key began before; None: there was none."""
    kept = KeptAnswer.objects.filter(key=key.key).first()
    if kept is None:
        return None
    if kept.digest != key.digest:
        raise KeyReused("this key came with another request before")
    return BulkOperation.objects.get(pk=int(kept.answer))


def _kept(operation: BulkOperation) -> BulkOperation:
    operation.began_at_ms = Task.objects.now_ms()
    operation.save()
    return operation


def _at_once(operation: BulkOperation) -> BulkOperation:
    """As much of it as goes before somebody waits for the answer."""
    run(operation.pk, seconds=AT_ONCE_S)
    operation.refresh_from_db()
    return operation


def _wrong_binding(selection: Selection) -> Iterator[Problem]:
    """It comes back from whoever saw the preview: nothing that is still to come may be meant."""
    if not 0 <= selection.bound <= (newest := Task.objects.newest_id()):
        yield "bound", f"must be the value of the preview: an id between 1 and {newest}"
    if not 0 <= selection.as_of_ms <= Task.objects.now_ms():
        yield "as_of", "must be the value of the preview: a time that is not in the future"


def _drift(asked: Asked, seen: Preview) -> list[Problem]:
    if abs(seen.count - asked.expected) <= max(SOME_DRIFT, asked.expected // 100):
        return []
    return [("expected", f"the selection changed from {asked.expected} to {seen.count} tasks. Review and confirm")]


def _not_typed(asked: Asked, seen: Preview) -> list[Problem]:
    # The number that was shown, should it have drifted a little.
    typed = to_type(asked.action.words, replace(seen, count=asked.expected))
    if not typed or asked.typed == typed:
        return []
    what = "the group's name" if seen.group else "the number"
    return [("typed", f"type {what}, {typed}, to confirm")]
