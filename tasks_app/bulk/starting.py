"""Start an operation that was previewed, cancel it, and undo it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from django.db import IntegrityError

from taskstore.errors import CommitRefused, Forbidden, KeyReused, StoreBusy, refuse
from taskstore.types.bulk import PURGE, UNDO, WORDS, BulkAction
from taskstore.types.schedules import SCHEDULES
from taskstore.types.tasks import NOBODY, Problem

from ..access import audit
from ..conf.retention import UNDO_DAYS
from ..core.actors import PROGRAM, Actor
from ..core.operations import Commit, ResendKey, Step
from ..database import atomic
from ..models import Batch, BulkOperation, KeptAnswer, Task
from .actions import Action, Purge
from .running import reopening, run, why_not
from .selection import Preview, Selection, preview

NEEDS_TYPED_NAME_ABOVE = 1_000
SOME_DRIFT = 10  # By so many tasks a selection may change after its preview, or by one in a hundred.
DAY_MS = 24 * 60 * 60_000
AT_ONCE_S = 0.3  # Small operations end before the request is answered.


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A confirmed operation."""

    action: Action
    selection: Selection  # As bound by the preview.
    expected: int  # The number of tasks in the preview.
    typed: str = ""  # See `to_type`.
    key: ResendKey | None = None  # A repeated request with the same key does not start another operation.


def drifted(expected: int, found: int, what: str = "tasks") -> Iterator[Problem]:
    """Yield the problem that a selection has changed too much since its preview."""
    if abs(found - expected) > max(SOME_DRIFT, expected // 100):
        yield "expected", changed_since(expected, found, what)


def changed_since(expected: int, found: int, what: str = "tasks") -> str:
    return f"the selection changed from {expected} to {found} {what}. Review and confirm"


def start(asked: Asked, actor: Actor = PROGRAM) -> BulkOperation:
    """Start an operation and run it for a moment. Its `state` says whether it has ended.

    Raises InvalidInput when a field is invalid or the number of tasks differs from the preview, Forbidden when the
    only group of the tasks, or their target, may not be changed, and KeyReused when the key came with another request.
    """
    if asked.key and (begun := _begun_with(asked.key)):
        return begun
    problems = list(actor.problems())
    # The client returns the binding of the preview: it must not include future tasks.
    if not 0 <= asked.selection.bound <= (newest := Task.objects.newest_id()):
        problems.append(("bound", f"must be the value of the preview: an id between 1 and {newest}"))
    if not 0 <= asked.selection.as_of_ms <= Task.objects.now_ms():
        problems.append(("as_of", "must be the value of the preview: a time that is not in the future"))
    refuse(problems)
    selection = replace(asked.selection, scope=actor.scope)
    seen = preview(selection, asked.action)
    refuse_forbidden(seen, asked.action, actor)
    refuse(list(asked.action.problems(seen.group)))
    problems = [*drifted(asked.expected, seen.count)]
    # The typed number is that of the preview, which may have drifted a little.
    typed = to_type(asked.action.words, replace(seen, count=asked.expected))
    if typed and asked.typed != typed:
        what = "the group's name" if seen.group else "the number"
        problems.append(("typed", f"type {what}, {typed}, to confirm"))
    refuse(problems)
    operation = BulkOperation(
        verb=asked.action.words.name,
        parameters=asked.action.as_json,
        selection=seen.selection.as_json,
        in_words=selection.in_words,
        group=seen.group,
        expected=asked.expected,
        by=actor.name,
        reason=actor.reason,
    )
    try:
        with atomic():
            _save(operation)
            if asked.key:
                answer = {"at_ms": operation.began_at_ms, "answer": str(operation.pk), "ids": ""}
                KeptAnswer.objects.create(key=asked.key.key, digest=asked.key.digest, **answer)
    except IntegrityError:  # The same request came twice at the same moment.
        if asked.key and (begun := _begun_with(asked.key)):
            return begun
        raise
    return _run_at_once(operation)


def delete_batch(batch_id: int, actor: Actor = PROGRAM) -> BulkOperation | None:
    """Have a batch, with those within it, take no more tasks, and purge them. Its plans are not carried out.

    Returns the operation, whose undo opens the batch again; None if there is no such batch.
    """
    refuse(actor.problems())
    try:
        within = Batch.objects.tree(batch_id).still_open()
        if within.within(actor.scope).count() < within.count() and within.within(actor.scope).filter(pk=batch_id):
            raise Forbidden("a batch within it has groups that you have no access to, so that you can't delete it")
        ids = within.values_list("pk", flat=True)
        Task.objects.change_batch(batch_id, Step.DELETE, actor.scope, also=ids)
    except CommitRefused:
        return None
    action = Purge(takes_claimed=True, batch=batch_id)
    seen = preview(Selection(q=f"batch:{batch_id}", scope=actor.scope), action)
    return start(Asked(action=action, selection=seen.selection, expected=seen.count, typed=to_type(PURGE, seen)), actor)


def refuse_forbidden(seen: Preview, action: Action, actor: Actor) -> None:
    """Raise Forbidden when the only group of the tasks, or their target, may not be changed."""
    if action.only_deletes or (action.ends_tasks and seen.group == SCHEDULES):
        return  # Operators may delete every task, also in groups to which they may not add.
    actor.must_change(seen.group)
    only = Task.objects.get_queryset().filter(id__in=seen.samples).first() if seen.count == 1 else None
    if only and (why := why_not(only, actor.scope)):
        raise Forbidden(why)
    # With several targets, the operation skips tasks whose target may not be changed.
    targets = [target.group for target in seen.targets] if len(seen.targets) == 1 else [action.to_group]
    for group in filter(None, targets):
        if why := actor.scope.why_out_of_reach(group):
            raise Forbidden(why)


def to_type(words: BulkAction, seen: Preview) -> str:
    """Return the text that confirms a large destructive action: the group, or the number of tasks of several groups.

    Empty when nothing has to be typed.
    """
    if not words.is_destructive or not (seen.selection.is_whole_group or seen.count > NEEDS_TYPED_NAME_ABOVE):
        return ""
    return seen.group or str(seen.count)


def cancel(operation: BulkOperation, actor: Actor) -> BulkOperation:
    """Cancel the operation before its next chunk. Does nothing when it has ended."""
    waiting = BulkOperation.objects.filter(pk=operation.pk, state=BulkOperation.State.RUNNING, cancelled_by="")
    with atomic():
        is_cancelled = bool(waiting.update(cancelled_by=actor.name))
        if is_cancelled:
            audit.record(actor, "cancel", selection=f"operation {operation.pk}", group=operation.group, done=1)
    if is_cancelled:
        run(operation.pk, seconds=0)
    return BulkOperation.objects.get(pk=operation.pk)


def undo(operation: BulkOperation, actor: Actor = PROGRAM) -> BulkOperation:
    """Start the undo of an operation, which skips tasks that have changed since.

    Raises InvalidInput about `operation` with the reason when it can't be undone, and Forbidden when the only group of
    the tasks, or their target, may not be changed.
    """
    for group in (operation.group, operation.parameters.get("to", "")):
        actor.must_change(group)
    with atomic():
        # Two undos at the same moment would restore each task twice.
        BulkOperation.objects.select_for_update().get(pk=operation.pk)
        why = why_not_undoable(operation)
        refuse([*actor.problems(), *([("operation", why)] if why else [])])
        undo = BulkOperation(
            verb=UNDO.name,
            # It keeps the scope of the undone operation.
            selection={
                **operation.selection,
                "no_commands_because": actor.scope.no_commands_because,
                "holder": actor.scope.holder,
            },
            in_words=f"operation {operation.pk}: {operation.verb} of {operation.in_words}",
            group=operation.group,
            expected=operation.done,
            undoes=operation.pk,
            by=actor.name,
            reason=actor.reason,
        )
        _save(undo)
        if not operation.done and (batch := reopening(operation)):  # Otherwise its first tasks open it.
            Task.objects.perform(Commit(owner=NOBODY, scope=actor.scope, batch=batch))
    return _run_at_once(undo)


def why_not_undoable(operation: BulkOperation) -> str:
    """Return the reason why an operation can't be undone, as a clause; empty when it can."""
    if operation.undoes:
        return "an undo can't be undone"
    if WORDS[operation.verb].of_leases:
        return "a lease that has ended can't be given again"
    if operation.ended_at_ms is None:
        return "a running operation can't be undone: cancel it first"
    if not (operation.done or operation.parameters.get("batch")):
        return "it changed nothing, so there is nothing to undo"
    if operation.ended_at_ms < Task.objects.now_ms() - UNDO_DAYS * DAY_MS:
        return f"it can't be undone more than {UNDO_DAYS} days after its end"
    undos = BulkOperation.objects.filter(undoes=operation.pk).exclude(state=BulkOperation.State.CANCELLED)
    # An undo that could restore nothing, as its operator may not add that, leaves it to another one.
    if undos.exclude(state=BulkOperation.State.DONE, done=0, skipped__gt=0).exists():
        return "it was already undone"
    return ""


def _begun_with(key: ResendKey) -> BulkOperation | None:
    """Return the operation of an earlier request with this key, or None. Raises KeyReused."""
    kept = KeptAnswer.objects.filter(key=key.key).first()
    if kept is None:
        return None
    if kept.digest != key.digest:
        raise KeyReused("this key was used before with another request")
    return BulkOperation.objects.get(pk=int(kept.answer))


def _save(operation: BulkOperation) -> None:
    operation.began_at_ms = Task.objects.now_ms()
    operation.save()


def _run_at_once(operation: BulkOperation) -> BulkOperation:
    with suppress(StoreBusy):  # The operation has begun, and a server continues it.
        run(operation.pk, seconds=AT_ONCE_S)
    operation.refresh_from_db()
    return operation
