"""Batches: when they close, and what is added then. Pure.

A batch is open while it has members that have neither ended nor gone, open children, or is held. A member has ended
when a program deleted it, or as a succeeded record. It has failed as a dead letter, and as a job or command that failed
for good: a requeue takes it back. It has gone when somebody cancelled, purged or removed it before it succeeded.
Source: contract.md section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from taskstore.types.batches import AFTER_BATCH, MOST_PLANNED, ON_FAILURE, THEN, KeptLevel, NewBatch, Plan, step_of
from taskstore.types.command_record import COUNT_LABEL
from taskstore.types.scalars import whole
from taskstore.types.tasks import COMMAND_GROUPS, Change, NewTask, Standing, holds_results, standing_of

from .operations import BatchStep, Commit, Effect, GroupScope, Step, TaskRecord, Update


class Phase(IntEnum):
    """The place of its number among the counts of a batch."""

    OPEN = 0
    FAILED = 1
    ENDED = 2
    GONE = 3


FAILURES = (Phase.FAILED, Phase.GONE)
RECORDS: Mapping[str, Phase | None] = {"cancelled": Phase.GONE, "failed_archive": None}


def phase_of(task: TaskRecord) -> Phase | None:
    """Return the phase of a member. None: of an archived run, after which another command is the member."""
    if task.standing == Standing.FINISHED:
        return RECORDS.get(task.group.rpartition("/")[2], Phase.ENDED)
    return Phase.FAILED if task.standing == Standing.FAILED else Phase.OPEN


def weight_of(task: TaskRecord) -> int:
    """Return as how many members a task counts: a list as its commands."""
    return weight_in(task.group, task.labels.get(COUNT_LABEL, ""))


def weight_in(group: str, commands: str) -> int:
    """Return as how many members a task of this group counts. `commands`: its label with their number."""
    return whole(commands if group.startswith(COMMAND_GROUPS) else "", 1, MOST_COMMANDS) or 1


def phase_after_removal(task: TaskRecord, commit: Commit) -> Phase | None:
    """Return the phase of a member that has no successor."""
    if commit.operator and not (isinstance(commit, Update) and task.id not in commit.matched):
        return Phase.ENDED if commit.operator.counts_as_done else Phase.GONE
    if holds_results(task.group):
        return Phase.GONE  # Unless it had succeeded, which nothing changes.
    # What stands for commands between their states is no member any more.
    return None if task.group.startswith(COMMAND_GROUPS) else Phase.ENDED


MOST_COMMANDS = 10**6  # Of a list.

# After the first failure of a batch: its `on_failure` was added, or is still to be added.
ADDED, OWED = 1, 2


@dataclass(frozen=True, slots=True)
class Part:
    """Tasks that a level of a plan adds, and whose rights these are."""

    plan: Plan
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Level:
    """The tasks that a batch adds when it closes, or at its first failure. They are read only when that may be now.

    With numbers of tasks below it is a batch of its own. `against`: why nothing of it can be added; empty: it can.
    """

    parts: tuple[Part, ...]
    then: int = 0
    on_failure: int = 0
    steps: int = 0
    groups: frozenset[str] = frozenset()  # Named by this level and those below it.
    against: str = ""
    within: tuple[Level, ...] = ()  # The batches that begin together with its tasks.

    @property
    def is_batch(self) -> bool:
        return bool(self.then or self.on_failure or self.steps or self.within)

    @property
    def new_batches(self) -> int:
        """Return how many batches it makes."""
        return self.is_batch + sum(level.new_batches for level in self.within)

    @classmethod
    def of(cls, plan: Plan, holder: str) -> Level:
        then, on_failure = (part.number if part else 0 for part in (plan.then, plan.on_failure))
        within = tuple(cls.of(each, holder) for each in plan.batches)
        return cls((Part(plan, holder),), then, on_failure, len(plan.steps), plan.groups, within=within)

    @classmethod
    def kept_as(cls, kept: KeptLevel, holder: str, groups: frozenset[str]) -> Level:
        """Return the level that the store has kept. `groups`: all that it names."""
        within = tuple(cls.kept_as(each, holder, groups) for each in kept.batches)
        return cls((Part(Plan(kept.adds), holder),), kept.then, kept.on_failure, kept.steps, groups, within=within)


@dataclass(slots=True)
class Batch:
    """A batch within a transaction. `is_exact`: nobody else changes its counts until the transaction ends.

    Its plans are the levels below `path` in the plan that the batch `root` was made with.
    """

    id: int
    parent: int = 0
    hold: bool = False
    failed_ends: bool = False
    refuses: bool = False  # It is being deleted.
    failed_children: int = 0  # That have closed as failed, or were deleted.
    has_failed: int = 0  # Whether `on_failure` is added, or owed because something was against it; if there is none,
    # whether its parent knows of the failure.
    children: int = 0  # That are open.
    closed_at_ms: int = 0  # 0: it is open.
    steps: int = 0  # How many levels follow within it,
    then: int = 0  # how many tasks it adds when it closes,
    on_failure: int = 0  # and at the first failure.
    problem: str = ""  # Why it could not add them.
    root: int = 0
    path: str = ""
    levels: dict[str, Level] = field(default_factory=dict)  # The levels that were read, by THEN and ON_FAILURE.
    planned_bytes: int = 0  # By its plans. Read only where more is added to them.
    counts: list[int] = field(default_factory=lambda: [0] * len(Phase))
    groups: frozenset[str] = frozenset()  # That were named in it. Read only where somebody names the batch.
    known_groups: frozenset[str] = frozenset()  # Those of them that were named before.
    is_exact: bool = True
    made: NewBatch | None = None  # It is new.
    rights: GroupScope | None = None  # The rights of its plans, if it is new.
    taken_over: list[tuple[int, GroupScope]] = field(default_factory=list)  # Rows of its plans, with their new rights.
    more: list[int] = field(default_factory=lambda: [0] * len(Phase))  # What this transaction adds to the counts.
    is_changed: bool = False  # Beyond its counts.
    later: list[tuple[Plan, GroupScope]] = field(default_factory=list)  # More of its `then`, with these rights.
    spent: set[str] = field(default_factory=set)  # The levels that it has added.

    @property
    def next_level(self) -> str:
        """Return what it adds when nothing in it is open; empty: nothing."""
        return step_of(self.steps) if self.steps else THEN if self.then else ""

    def move(self, before: Phase | None, weight: int, after: Phase | None, weight_after: int) -> None:
        """Count a member that is in another phase now; it is new if it was in none, and leaves if it is in none."""
        for phase, more in ((before, -weight), (after, weight_after)):
            if phase is not None:
                self.counts[phase] += more
                self.more[phase] += more

    @property
    def may_close(self) -> bool:
        is_waiting = self.counts[Phase.OPEN] or self.children or (self.hold and not self.refuses)
        return not (is_waiting or self.closed_at_ms or (self.counts[Phase.FAILED] and not self.failed_ends))

    @property
    def tells_failure(self) -> bool:
        """Return whether the first failure in it, of a member or of a batch within, adds something or concerns others.

        An `on_failure` is that of all that is within the batch.
        """
        is_told = self.has_failed or self.refuses or self.closed_at_ms
        return bool((self.on_failure or self.parent) and not is_told)

    @property
    def has_lost(self) -> bool:
        """Return whether something in it can't succeed any more, so that it closes as failed."""
        return bool(self.counts[Phase.GONE] or self.failed_children) and not self.failed_ends

    def is_seen(self, scope: GroupScope) -> bool:
        return scope.is_everything or all(map(scope.allows, self.groups))

    def due(self, letter: str) -> Level | None:
        """The level that it adds now; None: it stays as it is, because of a problem or as the level was not read.

        A level that was not read is added by the housekeeper, who looks at each batch that could be closed.
        """
        level = self.levels.get(letter)
        if level and level.against != self.problem:
            self.problem, self.is_changed = level.against, True
        return None if level is None or level.against else level


Draft = Callable[[NewTask, str], TaskRecord]


class Batches:
    """The batches that the operations of a transaction concern. `new_ids`: for those that may be made in it."""

    def __init__(self, batches: Mapping[int, Batch], new_ids: Iterator[int], most_bytes: int = 2**63) -> None:
        self._batches = dict(batches)
        self._new_ids = new_ids
        self._most_bytes = most_bytes

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
        elif change.step is Step.COMPLETE and batch.closed_at_ms:
            yield f"batch {change.id} is closed"
        elif change.plan.then and batch.closed_at_ms and batch.has_lost:
            yield f"batch {batch.id} has failed, so that nothing can follow it"
        elif later := change.plan.then:
            number = later.number + (0 if batch.closed_at_ms else batch.then)
            size = later.size + (0 if batch.closed_at_ms else batch.planned_bytes)
            if batch.refuses:
                yield self._why_closed(batch.id, scope)
            elif number > MOST_PLANNED:
                yield f"batch {batch.id} may add at most {MOST_PLANNED} tasks when it closes, not {number}"
            elif size > self._most_bytes:
                yield f"batch {batch.id} may plan at most {self._most_bytes} bytes of tasks, not {size}"

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
            plan, level = commit.batch.plan, Level.of(commit.batch.plan, commit.scope.holder)
            made = self._make(commit.batch, level)
            made.rights = commit.scope
            later = {path: part for path, part in plan.levels if path in (THEN, ON_FAILURE, made.next_level)}
            made.levels = {path: Level.of(part, commit.scope.holder) for path, part in later.items()}
            touched[made.id] = made
            drafts = [
                draft if number in replacing else draft._replace(batch=made.id) for number, draft in enumerate(drafts)
            ]
            added += self._fill(made, level, "", planned)
        if isinstance(commit.batch, BatchStep):
            for batch_id in sorted({commit.batch.id, *commit.batch.also}):  # Those around others first.
                if changed := self._batches.get(batch_id):
                    touched[batch_id] = changed
                    added += self._step(changed, commit.batch, commit.scope, planned)
        for task, _, place in effect.removals:
            batch = self._batches.get(task.batch) if task.batch else None
            if batch is None:
                continue
            draft = None if place is None else drafts[place]
            before, weight = phase_of(task), weight_of(task)
            after, weight_after = phase_of(draft) if draft else phase_after_removal(task, commit), weight
            if after is Phase.GONE and commit.operator and commit.operator.counts_as_done:
                after = Phase.ENDED
            leaves = after is None or (after is Phase.ENDED and draft is not None and phase_of(draft) is Phase.GONE)
            if draft and (after is before or before is Phase.OPEN):
                weight_after = weight_of(draft)
            if (after, weight_after) == (before, weight) or (draft is None and before in (Phase.ENDED, Phase.GONE)):
                continue
            if batch.closed_at_ms or before is Phase.ENDED:
                leaves = True  # Its batch goes on without it.
            else:
                batch.move(before, weight, after, weight_after)
                touched[batch.id] = batch
                if after in FAILURES and before not in FAILURES:
                    failing.add(batch.id)
            if leaves and place is not None:
                drafts[place] = drafts[place]._replace(batch=0)
        for place, new in enumerate(drafts):
            if not new.batch or place in replacing:
                continue
            joined = self._batches.get(new.batch)
            if joined is None or joined.closed_at_ms:  # Only what is restored comes so late.
                drafts[place] = new._replace(batch=0)
                continue
            phase, weight = phase_of(new), weight_of(new)
            if phase is None:
                drafts[place] = new._replace(batch=0)
                continue
            # What is restored was counted as it went.
            before = (Phase.ENDED if phase is Phase.ENDED else Phase.GONE) if new.origin else None
            joined.move(before, weight, phase, weight)
            if phase in FAILURES and not new.origin:
                failing.add(joined.id)
            joined.groups |= {new.group}
            touched[joined.id] = joined
        added += self._settle(touched, failing, now_ms, planned)
        if not added and drafts == [*effect.drafts]:
            return effect
        return effect._replace(drafts=(*drafts, *added), made=len(added))

    def _make(self, new: NewBatch, level: Level, root: int = 0, path: str = "") -> Batch:
        batch = Batch(
            id=next(self._new_ids),
            parent=new.parent,
            hold=new.hold,
            failed_ends=new.failed_ends,
            steps=level.steps,
            then=level.then,
            on_failure=level.on_failure,
            made=new,
            path=path,
            groups=level.groups,
        )
        batch.root = root or batch.id
        self._batches[batch.id] = batch
        if parent := self._batches.get(batch.parent):
            parent.children += 1
            parent.is_changed = True
        return batch

    def _step(self, batch: Batch, change: BatchStep, scope: GroupScope, planned: Draft) -> list[TaskRecord]:
        """Change a batch. Returns what is added because it has closed already."""
        batch.is_changed = change.step is not Step.LOOK
        batch.taken_over += [(row, scope) for row in change.takes_over]
        match change.step:
            case Step.RELEASE:
                batch.hold = False
            case Step.COMPLETE:
                batch.failed_ends = True
            case Step.DELETE:
                batch.refuses = True
            case Step.REOPEN:
                parent = self._batches.get(batch.parent)
                if batch.closed_at_ms and parent and not parent.closed_at_ms:
                    parent.children += 1
                    parent.failed_children = max(0, parent.failed_children - 1)
                    parent.is_changed = True
                batch.refuses, batch.closed_at_ms = False, 0
            case Step.ADD_LATER if change.plan.then and batch.closed_at_ms:
                return self._add(Level.of(change.plan.then, scope.holder), THEN, batch, planned)
            case Step.ADD_LATER if later := change.plan.then:
                batch.later.append((later, scope))
                if THEN in batch.levels or not batch.then:  # A level that was not read stays so.
                    before = batch.levels.get(THEN, Level(()))
                    parts = (*before.parts, Part(later, scope.holder))
                    batch.levels[THEN] = replace(before, parts=parts, groups=before.groups | later.groups)
                batch.then += later.number
                batch.planned_bytes += later.size
                batch.groups |= later.groups
        return []

    def _settle(self, touched: dict[int, Batch], failing: set[int], now_ms: int, planned: Draft) -> list[TaskRecord]:
        """Close what has nothing left to wait for, children first. Returns what is added."""
        added: list[TaskRecord] = []
        while touched:
            batch = touched.pop(max(touched))
            parent = self._batches.get(batch.parent)
            if parent and parent.refuses and not batch.closed_at_ms:  # It was made while that was deleted.
                batch.refuses = True
            if batch.id in failing and batch.is_exact and batch.tells_failure:
                batch.has_failed, batch.is_changed = OWED if batch.on_failure else ADDED, True
                if parent and not batch.failed_ends:
                    failing.add(parent.id)
                    touched[parent.id] = parent
            if batch.has_failed == OWED and not batch.refuses:
                level = batch.due(ON_FAILURE)
                if level is None:
                    continue  # It stays open until that is added.
                batch.has_failed, batch.is_changed = ADDED, True
                added += self._add(level, ON_FAILURE, batch, planned)
            if not (batch.may_close and batch.is_exact):
                continue
            fails = batch.refuses or batch.has_lost
            letter = "" if fails else batch.next_level
            level = batch.due(letter) if letter else None
            if letter and level is None:
                continue
            batch.is_changed, batch.problem = True, ""
            if level and batch.steps:
                added += self._after(batch, self._fill(batch, level, letter, planned))
                batch.spent.add(letter)
                batch.steps -= 1
                continue
            batch.closed_at_ms = now_ms
            if level:
                added += self._add(level, THEN, batch, planned)
                batch.then = 0  # Nor when it is opened again.
            if parent and not parent.closed_at_ms:
                parent.children -= 1
                parent.is_changed = True
                touched[parent.id] = parent
                if fails:
                    parent.failed_children += 1
                    failing.add(parent.id)
        return added

    def _add(self, level: Level, letter: str, ended: Batch, planned: Draft) -> list[TaskRecord]:
        """Return the tasks of a level of a batch."""
        ended.spent.add(letter)
        around = self._batches.get(ended.parent)
        if around and around.closed_at_ms:  # A batch that was deleted and opened again may outlive its parent.
            around = None
        return self._after(ended, self._begin(level, around, ended.root, f"{ended.path}{letter}", planned))

    @staticmethod
    def _after(batch: Batch, tasks: Iterable[TaskRecord]) -> list[TaskRecord]:
        return [task._replace(labels={**task.labels, AFTER_BATCH: str(batch.id)}) for task in tasks]

    def _begin(self, level: Level, around: Batch | None, root: int, path: str, planned: Draft) -> list[TaskRecord]:
        """Return the tasks of a level, members of a new batch or of the one around it, and those of batches within."""
        if not level.is_batch:
            return self._fill(around, level, "", planned)
        batch = self._make(NewBatch(parent=around.id if around else 0), level, root, path)
        return self._fill(batch, level, "", planned)

    def _fill(self, batch: Batch | None, level: Level, letter: str, planned: Draft) -> list[TaskRecord]:
        """Return the tasks of a level, members of the batch if there is one, and those of batches within."""
        tasks = [
            planned(add, part.holder)._replace(batch=batch.id if batch else 0)
            for part in level.parts
            for add in part.plan.adds
        ]
        if batch:
            for task in tasks:
                batch.move(None, 1, phase_of(task), 1)
            batch.groups |= {task.group for task in tasks}
            for place, within in enumerate(level.within):
                tasks += self._begin(within, batch, batch.root, f"{batch.path}{letter}{place}.", planned)
        return tasks


def possible_ends(operations: Iterable[object], named: Mapping[int, TaskRecord]) -> Iterator[tuple[TaskRecord, bool]]:
    """Yield the members whose phase, or weight, may change, and whether they may fail."""
    for commit in operations:
        if not isinstance(commit, Commit):
            continue
        replacing = {add.id: add for add in commit.adds if add.id}
        for task_id in commit.deletes:
            if (task := named.get(task_id)) and task.batch:
                add = replacing.get(task_id)
                may_fail = phase_after_removal(task, commit) is Phase.GONE
                if add is not None:
                    may_fail = _may_fail(add.group, add.moving.error if add.moving else add.error, task)
                yield task, may_fail
        for change in commit.updates:
            if (task := named.get(change.id)) and task.batch and changes_phase(change, task):
                may_fail = bool(change.failed_from) or _may_fail(change.group or task.group, change.error, task)
                yield task, may_fail


def _may_fail(group: str, error: str | None, task: TaskRecord) -> bool:
    """Return whether a successor in this group may have failed."""
    if holds_results(group):
        return keeps_failures(group)
    return bool(task.error if error is None else error)


def keeps_failures(group: str) -> bool:
    """Return whether the jobs or commands of this group have failed, or were cancelled."""
    return standing_of(group, "", {}) is Standing.FAILED or RECORDS.get(group.rpartition("/")[2]) is Phase.GONE


def changes_phase(change: Change, task: TaskRecord) -> bool:
    """Return whether the change may: it moves the task, says where a dead letter came from, or how long a list is."""
    labels = task.labels if change.labels is None else change.labels
    is_other_list = labels.get(COUNT_LABEL) != task.labels.get(COUNT_LABEL) and task.group.startswith(COMMAND_GROUPS)
    moves = change.group not in (None, task.group)
    return moves or is_other_list or change.failed_from is not None or bool(task.failed_from)
