"""Batches: when they close, and what is added then. Pure.

A batch is open while it has members that have not ended, open children, or is held. A member has ended when it is gone,
or a finished record; dead letters, and jobs and commands that failed for good, have failed. Source: contract.md
section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from taskstore.types.batches import AFTER_BATCH, MOST_PLANNED, NewBatch, Plan
from taskstore.types.tasks import Change, NewTask, Standing, holds_results, standing_of

from .operations import BatchStep, Commit, Effect, GroupScope, Step, TaskRecord


class Phase(IntEnum):
    """The place of its number among the counts of a batch."""

    OPEN = 0
    FAILED = 1
    ENDED = 2


PHASES: Mapping[int, Phase] = {Standing.FINISHED: Phase.ENDED, Standing.FAILED: Phase.FAILED}


def phase_of(task: TaskRecord) -> Phase:
    return PHASES.get(task.standing, Phase.OPEN)


@dataclass(slots=True)
class Batch:
    """A batch within a transaction. `is_exact`: nobody else changes its counts until the transaction ends."""

    id: int
    parent: int = 0
    hold: bool = False
    failed_ends: bool = False
    refuses: bool = False  # It is being deleted.
    has_failed: bool = False  # What `on_failure` says has been added.
    children: int = 0  # That are open.
    closed_at_ms: int = 0  # 0: it is open.
    then: Plan | None = None
    on_failure: Plan | None = None
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])  # By phase.
    groups: frozenset[str] = frozenset()  # That were named in it. Read only where somebody names the batch.
    known_groups: frozenset[str] = frozenset()  # Those of them that were named before.
    is_exact: bool = True
    made: NewBatch | None = None  # It is new.
    more: list[int] = field(default_factory=lambda: [0, 0, 0])  # What this transaction adds to the counts.
    is_changed: bool = False  # Beyond its counts.
    adds_more: bool = False  # Its `then` is another.

    def move(self, before: Phase | None, after: Phase) -> None:
        """Count a member that is in another phase now; it is new if it was in none."""
        for phase, more in ((before, -1), (after, 1)):
            if phase is not None:
                self.counts[phase] += more
                self.more[phase] += more

    @property
    def may_close(self) -> bool:
        is_waiting = self.counts[Phase.OPEN] or self.children or (self.hold and not self.refuses)
        return not (is_waiting or self.closed_at_ms or (self.counts[Phase.FAILED] and not self.failed_ends))

    def is_seen(self, scope: GroupScope) -> bool:
        return scope.is_everything or all(map(scope.allows, self.groups))


Draft = Callable[[NewTask], TaskRecord]


class Batches:
    """The batches that the operations of a transaction concern. `new_ids`: for those that may be made in it."""

    def __init__(self, batches: Mapping[int, Batch], new_ids: Iterator[int]) -> None:
        self._batches = dict(batches)
        self._new_ids = new_ids

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches.values())

    def problems(self, commit: Commit) -> Iterator[str]:
        """Yield why the commit can't concern the batches that it names."""
        named = [(f"adds[{place}].batch", add.batch) for place, add in enumerate(commit.adds) if not add.origin]
        if isinstance(commit.batch, NewBatch):
            named.append(("parent", commit.batch.parent))
        for path, batch_id in named:
            if batch_id and (why := self._why_closed(batch_id, commit.scope)):
                yield f"{path}: {why}"
        if isinstance(commit.batch, BatchStep):
            yield from self._why_not(commit.batch, commit.scope)

    def _why_not(self, change: BatchStep, scope: GroupScope) -> Iterator[str]:
        batch = self._find(change.id, scope)
        if batch is None:
            yield f"batch {change.id} does not exist"
        elif change.step is Step.ADD_LATER:
            number = len(change.adds) + (len(batch.then.adds) if batch.then and not batch.closed_at_ms else 0)
            if batch.refuses:
                yield self._why_closed(batch.id, scope)
            elif number > MOST_PLANNED:
                yield f"batch {batch.id} may add at most {MOST_PLANNED} tasks when it closes, not {number}"

    def _find(self, batch_id: int, scope: GroupScope) -> Batch | None:
        batch = self._batches.get(batch_id)
        return batch if batch and batch.is_seen(scope) else None

    def _why_closed(self, batch_id: int, scope: GroupScope) -> str:
        batch = self._find(batch_id, scope)
        if batch is None:
            return f"batch {batch_id} does not exist"
        if batch.refuses:
            return f"batch {batch_id} is deleted, and takes no more tasks"
        return f"batch {batch_id} is closed, and takes no more tasks" if batch.closed_at_ms else ""

    def follow(self, commit: Commit, effect: Effect, now_ms: int, planned: Draft) -> Effect:
        """Note what becomes of members. Returns the effect with what batches add; members that leave are no longer."""
        drafts, added = list(effect.drafts), list[TaskRecord]()
        touched: dict[int, Batch] = {}
        failing: set[int] = set()
        replacing = {removal.successor for removal in effect.removals}
        if isinstance(commit.batch, NewBatch):
            made = self._make(commit.batch)
            touched[made.id] = made
            drafts = [
                draft if number in replacing else draft._replace(batch=made.id) for number, draft in enumerate(drafts)
            ]
        if isinstance(commit.batch, BatchStep):
            changed = touched[commit.batch.id] = self._batches[commit.batch.id]
            added += self._step(changed, commit.batch, planned)
        for task, _, place in effect.removals:
            batch = self._batches.get(task.batch) if task.batch else None
            if batch is None:
                continue
            before, after = phase_of(task), Phase.ENDED if place is None else phase_of(drafts[place])
            if before is after:
                continue
            if after is Phase.OPEN and (before is Phase.ENDED or batch.closed_at_ms) and place is not None:
                drafts[place] = drafts[place]._replace(batch=0)  # Its batch goes on without it.
                continue
            batch.move(before, after)
            touched[batch.id] = batch
            if after is Phase.FAILED:
                failing.add(batch.id)
        for place, new in enumerate(drafts):
            if not new.batch or place in replacing:
                continue
            joined = self._batches.get(new.batch)
            if joined is None or joined.closed_at_ms:  # Only what is restored comes so late.
                drafts[place] = new._replace(batch=0)
                continue
            joined.move(Phase.ENDED if new.origin else None, phase_of(new))
            joined.groups |= {new.group}
            touched[joined.id] = joined
        added += self._settle(touched, failing, now_ms, planned)
        if not added and drafts == [*effect.drafts]:
            return effect
        return effect._replace(drafts=(*drafts, *added), made=len(added))

    def _make(self, new: NewBatch) -> Batch:
        batch = Batch(
            id=next(self._new_ids),
            parent=new.parent,
            hold=new.hold,
            failed_ends=new.failed_ends,
            then=new.then,
            on_failure=new.on_failure,
            groups=frozenset(add.group for _, add in new.planned),
            made=new,
        )
        self._batches[batch.id] = batch
        if parent := self._batches.get(new.parent):
            parent.children += 1
            parent.is_changed = True
        return batch

    def _step(self, batch: Batch, change: BatchStep, planned: Draft) -> list[TaskRecord]:
        """Change a batch. Returns what is added because it has closed already."""
        batch.is_changed = True
        match change.step:
            case Step.RELEASE:
                batch.hold = False
            case Step.DELETE:
                batch.refuses = True
            case Step.REOPEN:
                if batch.closed_at_ms and (parent := self._batches.get(batch.parent)):
                    parent.children += 1
                    parent.is_changed = True
                batch.refuses, batch.closed_at_ms = False, 0
            case Step.ADD_LATER if batch.closed_at_ms:
                return self._add(Plan(change.adds), batch, planned)
            case Step.ADD_LATER:
                now = batch.then or Plan(())
                batch.then, batch.adds_more = replace(now, adds=(*now.adds, *change.adds)), True
                batch.groups |= {add.group for add in change.adds}
        return []

    def _settle(self, touched: dict[int, Batch], failing: set[int], now_ms: int, planned: Draft) -> list[TaskRecord]:
        """Close what has nothing left to wait for, children first. Returns what is added."""
        added: list[TaskRecord] = []
        while touched:
            batch = touched.pop(max(touched))
            if batch.id in failing and batch.on_failure and not batch.has_failed:
                batch.has_failed = batch.is_changed = True
                added += self._add(batch.on_failure, batch, planned)
            if not (batch.may_close and batch.is_exact):
                continue
            batch.closed_at_ms, batch.is_changed = now_ms, True
            if batch.then and not batch.refuses:
                added += self._add(batch.then, batch, planned)
            if parent := self._batches.get(batch.parent):
                parent.children -= 1
                parent.is_changed = True
                touched[parent.id] = parent
        return added

    def _add(self, plan: Plan, ended: Batch, planned: Draft) -> list[TaskRecord]:
        """Return the tasks of a plan of a batch: members of a new batch, or of its parent if there is one."""
        batch = self._batches.get(ended.parent)
        if batch and batch.closed_at_ms:  # A batch that was deleted and opened again may outlive its parent.
            batch = None
        if plan.is_batch:
            parent = batch.id if batch else 0
            batch = self._make(NewBatch(then=plan.then, on_failure=plan.on_failure, parent=parent))
        tasks = [planned(add)._replace(batch=batch.id if batch else 0) for add in plan.adds]
        tasks = [task._replace(labels={**task.labels, AFTER_BATCH: str(ended.id)}) for task in tasks]
        if batch:
            for task in tasks:
                batch.move(None, phase_of(task))
            batch.groups |= {task.group for task in tasks}
        return tasks


def possible_ends(operations: Iterable[object], named: Mapping[int, TaskRecord]) -> Iterator[tuple[Commit, int, bool]]:
    """Yield each commit that may change the phase of a member, with the batch, and whether the member may fail."""
    for commit in operations:
        if not isinstance(commit, Commit):
            continue
        replacing = {add.id for add in commit.adds if add.id}
        for task_id in commit.deletes:
            if (task := named.get(task_id)) and task.batch:
                yield commit, task.batch, task_id in replacing
        for change in commit.updates:
            if (task := named.get(change.id)) and task.batch and changes_phase(change, task):
                group = change.group or task.group
                fails = standing_of(group, "", {}) is Standing.FAILED if holds_results(group) else True
                yield commit, task.batch, fails


def changes_phase(change: Change, task: TaskRecord) -> bool:
    """Return whether the change may: it moves the task, or says where a dead letter came from."""
    return change.group not in (None, task.group) or change.failed_from is not None or bool(task.failed_from)
