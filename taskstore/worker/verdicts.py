"""The commits that end a lease by what came of the work. Pure.

The label `attempts` counts: tasks never change, so what is known of one has to travel with it, and its `claims` also
count those that were given back, and those in groups that it came through before. It is written when an attempt
went wrong, and before an attempt at a task that was claimed before: the worker may die in it like the last one.
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
    """The number of the attempt that a claim of it begins."""
    noted = task.labels.get(ATTEMPTS_LABEL, "")
    return int(noted) + 1 if noted.isdecimal() else 1


def noted(task: Task, lease_ms: int) -> Change:
    """A renewal that also says that this attempt has begun."""
    labels = _with_attempts(task.labels, attempt_of(task))
    return Change(id=task.id, timespec_ms=-lease_ms, labels=labels)


def verdict(task: Task, handler: Handler, attempt: int, outcome: Outcome, claimed_id: int) -> Result:
    """What to commit. `claimed_id`: the id by which the function knew the task."""
    match outcome.how:
        case How.DONE:
            return _done(task, outcome.result, claimed_id)
        case How.DISCARDED:
            return Result(deletes=[task.id])
        case How.FAILED if attempt < handler.max_attempts:
            return _tried_again(task, handler, attempt, outcome.error)
        case _:
            return _moved(task, outcome.group or handler.failed_group, outcome.error)


def given_back(task: Task, attempt: int) -> Result:
    """At once to be had again. The attempt counts for nothing."""
    labels = _with_attempts(task.labels, attempt - 1)
    return Result(updates=[Change(id=task.id, labels=labels, release=True)])


def backoff_ms(handler: Handler, attempt: int) -> int:
    """How long after this attempt the next one is due."""
    doublings = min(attempt - 1, 40)
    return min(handler.backoff_ms << doublings, LONGEST_BACKOFF_MS)


def _done(task: Task, result: Result, claimed_id: int) -> Result:
    """With the id that the task has by now, and without its attempts in what it becomes."""
    ids = {claimed_id: task.id}
    updates = [_renamed(change, task, ids) for change in result.updates]
    deletes = [ids.get(each, each) for each in result.deletes]
    if task.id not in (*deletes, *(change.id for change in updates)):
        deletes.append(task.id)
    return Result(
        adds=[_successor(add, ids) if add.id in ids else add for add in result.adds],
        updates=updates,
        deletes=deletes,
        depends=[ids.get(each, each) for each in result.depends],
    )


def _renamed(change: Change, task: Task, ids: Mapping[int, int]) -> Change:
    if change.id not in ids:
        return change
    labels = task.labels if change.labels is None else change.labels
    return replace(change, id=ids[change.id], labels=_with_attempts(labels, 0))


def _successor(add: NewTask, ids: Mapping[int, int]) -> NewTask:
    return replace(add, id=ids[add.id], labels=_with_attempts(add.labels, 0))


def _tried_again(task: Task, handler: Handler, attempt: int, error: str) -> Result:
    later = Change(
        id=task.id,
        timespec_ms=-backoff_ms(handler, attempt),
        error=error,
        labels=_with_attempts(task.labels, attempt),
        release=True,
    )
    return Result(updates=[later])


def _moved(task: Task, group: str, error: str) -> Result:
    """As it is, and found by the ids that it had. Whoever moves it back starts to count anew."""
    there = NewTask.successor_of(task, group=group, error=error, labels=_with_attempts(task.labels, 0))
    return Result(adds=[there], deletes=[task.id])


def _with_attempts(labels: Mapping[str, str], attempts: int) -> dict[str, str]:
    others = {name: value for name, value in labels.items() if name != ATTEMPTS_LABEL}
    return {**others, ATTEMPTS_LABEL: str(attempts)} if attempts else others
