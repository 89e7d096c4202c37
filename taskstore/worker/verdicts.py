"""The commits that end a lease, depending on the outcome of the attempt. Pure.

The label `attempts` counts attempts. The task's `claims` can't be used, because it includes claims that were given back
and claims in earlier groups. The label is written when an attempt failed, and before an attempt at a task that was
claimed before, because the worker may die in it like the previous one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..types.tasks import ATTEMPTS as ATTEMPTS_LABEL
from ..types.tasks import Change, NewTask
from .handlers import Handler, How, Outcome, Result

if TYPE_CHECKING:
    from ..types.tasks import Task

LONGEST_BACKOFF_MS = 3_600_000


def attempt_of(task: Task) -> int:
    """Return the number of the attempt that starts with a claim of the task."""
    noted = task.labels.get(ATTEMPTS_LABEL, "")
    return int(noted) + 1 if noted.isdecimal() else 1


def noted(task: Task, lease_ms: int) -> Change:
    """Return a renewal that also records the start of this attempt."""
    labels = _with_attempts(task.labels, attempt_of(task))
    return Change(id=task.id, timespec_ms=-lease_ms, labels=labels)


def verdict(task: Task, handler: Handler, attempt: int, outcome: Outcome, claimed_id: int) -> Result:
    """Return the commit for an outcome. `claimed_id`: the id by which the function knows the task."""
    match outcome.how:
        case How.DONE:
            return _done(task, outcome.result, claimed_id)
        case How.DISCARDED:
            return Result(deletes=[task.id])
        case How.FAILED if attempt < handler.max_attempts:
            later = Change(
                id=task.id,
                timespec_ms=-backoff_ms(handler, attempt),
                error=outcome.error,
                labels=_with_attempts(task.labels, attempt),
                release=True,
            )
            return Result(updates=[later])
        case _:
            # A successor, found by all earlier ids. Its attempts are counted from zero if it is moved back.
            group, labels = outcome.group or handler.failed_group, _with_attempts(task.labels, 0)
            moved = NewTask.successor_of(task, group=group, error=outcome.error, labels=labels)
            return Result(adds=[moved], deletes=[task.id])


def given_back(task: Task, attempt: int) -> Result:
    """Return the commit that makes the task available at once, without counting the attempt."""
    labels = _with_attempts(task.labels, attempt - 1)
    return Result(updates=[Change(id=task.id, labels=labels, release=True)])


def backoff_ms(handler: Handler, attempt: int) -> int:
    """Return the pause between this attempt and the next one."""
    doublings = min(attempt - 1, 40)
    return min(handler.backoff_ms << doublings, LONGEST_BACKOFF_MS)


def _done(task: Task, result: Result, claimed_id: int) -> Result:
    """Return the result with the current id of the task, and without the count of attempts in its successors."""
    ids = {claimed_id: task.id}
    updates = [
        replace(
            change,
            id=ids[change.id],
            labels=_with_attempts(task.labels if change.labels is None else change.labels, 0),
        )
        if change.id in ids
        else change
        for change in result.updates
    ]
    deletes = [ids.get(each, each) for each in result.deletes]
    if task.id not in (*deletes, *(change.id for change in updates)):
        deletes.append(task.id)
    return Result(
        adds=[
            replace(add, id=ids[add.id], labels=_with_attempts(add.labels, 0)) if add.id in ids else add
            for add in result.adds
        ],
        updates=updates,
        deletes=deletes,
        depends=[ids.get(each, each) for each in result.depends],
    )


def _with_attempts(labels: Mapping[str, str], attempts: int) -> dict[str, str]:
    others = {name: value for name, value in labels.items() if name != ATTEMPTS_LABEL}
    return {**others, ATTEMPTS_LABEL: str(attempts)} if attempts else others
