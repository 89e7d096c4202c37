"""What a person does to many tasks at once: requeue, move, purge.

In chunks, each one whole commit, so that no transaction is giant. Tasks that a worker
holds, and tasks that changed since they were looked up, are left alone and counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Max

from . import audit
from .errors import CommitRefused, InvalidInput
from .managers import TaskQuerySet
from .models import Task
from .operations import Change, Commit, Ending, Operator, State
from .validation import group_name

CHUNK = 500  # Tasks a commit: short enough that workers' claims do not wait for it.
SAMPLES = 3
NEEDS_TYPED_NAME_ABOVE = 1_000
SOME_DRIFT = 10  # Tasks that may have come or gone since the preview, whatever the number.

CLAIMED_BY_A_WORKER = "claimed by a worker"
READY_ALREADY = "ready already"
CHANGED_MEANWHILE = "changed meanwhile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which tasks of a group are meant: those with these ids, or all in this state, or all.

    `bound` is the largest id there was at the preview: chains that began later are not touched. 0: no bound.
    """

    group: str
    state: State | None = None
    ids: tuple[int, ...] | None = None
    bound: int = 0

    def tasks(self, now_ms: int) -> TaskQuerySet:
        tasks = Task.objects.get_queryset().in_group(self.group)
        if self.ids is not None:
            tasks = tasks.filter(id__in=self.ids)
        if self.state is not None:
            tasks = tasks.in_state(self.state, now_ms)
        return tasks.filter(origin__lte=self.bound) if self.bound else tasks

    @property
    def in_words(self) -> str:
        if self.ids is not None:
            return f"{len(self.ids)} selected {'task' if len(self.ids) == 1 else 'tasks'}"
        return f"all {self.state.value} tasks" if self.state else "all tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a selection holds at a moment. `claimed` ones among the `count` will be skipped."""

    count: int
    by_state: Mapping[State, int]  # Ready, claimed, expired, scheduled: they add up to count.
    ready_already: int  # Ready and not failed: a requeue will skip them.
    samples: list[int]  # A few ids.
    at_ms: int
    bound: int

    @property
    def claimed(self) -> int:
        return self.by_state[State.CLAIMED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How many tasks were changed, and how many were skipped and why."""

    done: int
    skipped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Skip:
    """Why a task is left alone."""

    why: str


# Says what to do to a task in this state: a change, its id to delete it, or why it is skipped.
Step = Callable[[Task, State], Change | int | Skip]


def preview(selection: Selection) -> Preview:
    """Look at what the selection holds now."""
    now_ms = Task.objects.now_ms()
    tasks = selection.tasks(now_ms)
    states = (State.READY, State.CLAIMED, State.EXPIRED, State.SCHEDULED)
    by_state = {state: tasks.in_state(state, now_ms).count() for state in states}
    return Preview(
        count=sum(by_state.values()),
        by_state=by_state,
        ready_already=tasks.ready(now_ms).filter(error="").count(),
        samples=list(tasks.order_by("id").values_list("id", flat=True)[:SAMPLES]),
        at_ms=now_ms,
        bound=Task.objects.aggregate(Max("id", default=0))["id__max"],
    )


def requeue(selection: Selection, *, expected: int, by: str, reason: str = "") -> Result:
    """Make the tasks available now, without owner and error."""
    return _run("requeue", Ending.REQUEUED, selection, _requeued, expected, by, reason)


def move(selection: Selection, to: str, *, expected: int, by: str, create: bool = False, reason: str = "") -> Result:
    """Bring the tasks into the group `to`, which must exist unless `create` is set. All else stays."""
    problems = [text for _, text in group_name("to", to)]
    if to == selection.group:
        problems.append("a group other than the one that the tasks are in")
    elif not problems and not create and not Task.objects.get_queryset().in_group(to).exists():
        problems.append(f"no group {to} exists: tick the box to create it")
    if problems:
        raise InvalidInput({"to": problems})
    return _run("move", Ending.MOVED, selection, lambda task, _: _moved(task, to), expected, by, reason, to=to)


def purge(selection: Selection, *, expected: int, by: str, typed: str = "", reason: str = "") -> Result:
    """Delete the tasks. Above 1 000, and for a whole group, `typed` must be the group's name."""
    if needs_typed_name(selection, expected) and typed != selection.group:
        raise InvalidInput({"typed": [f"type the group's name, {selection.group}, to confirm"]})
    return _run("purge", Ending.PURGED, selection, _purged, expected, by, reason)


def needs_typed_name(selection: Selection, count: int) -> bool:
    is_whole_group = selection.ids is None and selection.state is None
    return is_whole_group or count > NEEDS_TYPED_NAME_ABOVE


def _requeued(task: Task, state: State) -> Change | Skip:
    if state is State.READY and not task.is_failed:
        return Skip(READY_ALREADY)
    return Change(id=task.id, keep_data=True, release=True)


def _moved(task: Task, to: str) -> Change:
    # A claimed task is never among them, so nobody's lease is given back here.
    return Change(id=task.id, group=to, timespec_ms=task.available_at_ms, keep_data=True, keep_error=True, release=True)


def _purged(task: Task, _: State) -> int:
    return task.id


def _run(
    action: str,
    ending: Ending,
    selection: Selection,
    step: Step,
    expected: int,
    by: str,
    reason: str,
    **details: str,
) -> Result:
    started = time.monotonic()
    ids = _ids(selection, expected)
    done, skipped = 0, Counter[str]()
    if selection.ids is not None:
        skipped[CHANGED_MEANWHILE] += len(set(selection.ids)) - len(ids)
    for chunk in _chunks(ids):
        tasks = list(Task.objects.defer("data").filter(id__in=chunk))
        skipped[CHANGED_MEANWHILE] += len(chunk) - len(tasks)
        done += _commit(tasks, step, Operator(name=by, ending=ending, reason=reason), skipped)
    result = Result(done=done, skipped={why: count for why, count in skipped.items() if count})
    audit.record(
        actor=by,
        action=action,
        group=selection.group,
        selection=selection.in_words,
        reason=reason,
        done=done,
        skipped=sum(result.skipped.values()),
        details={**details, "skipped": dict(result.skipped), "ids": ids[:CHUNK]},
        duration_ms=round((time.monotonic() - started) * 1000),
    )
    return result


def _ids(selection: Selection, expected: int) -> list[int]:
    """The ids that are meant, if their number is still about what was shown to the person who decided."""
    ids = list(selection.tasks(Task.objects.now_ms()).order_by("id").values_list("id", flat=True))
    if len(ids) - expected > max(SOME_DRIFT, expected // 100):
        raise InvalidInput({"expected": [f"there are {len(ids)} tasks now, not {expected}: look again"]})
    return ids


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK))


def _commit(tasks: Sequence[Task], step: Step, operator: Operator, skipped: Counter[str]) -> int:
    """Change what can be changed in one commit. Returns how many that were."""
    now_ms = Task.objects.now_ms()
    steps: dict[int, Change | int] = {}
    for task in tasks:
        state = task.state(now_ms)
        planned = Skip(CLAIMED_BY_A_WORKER) if state is State.CLAIMED else step(task, state)
        if isinstance(planned, Skip):
            skipped[planned.why] += 1
        else:
            steps[task.id] = planned
    while steps:
        try:
            Task.objects.perform(_commit_of(steps.values(), operator))
            break
        except CommitRefused as refused:
            # A worker was faster. What it left has a new id, so trying again ends.
            gone = (*refused.refusal.changes, *refused.refusal.deletes)
            skipped[CHANGED_MEANWHILE] += len(gone)
            for task_id in gone:
                del steps[task_id]
    return len(steps)


def _commit_of(steps: Collection[Change | int], operator: Operator) -> Commit:
    return Commit(
        owner=0,
        updates=tuple(step for step in steps if isinstance(step, Change)),
        deletes=tuple(step for step in steps if isinstance(step, int)),
        operator=operator,
    )
