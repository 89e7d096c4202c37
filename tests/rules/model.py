"""A store as plain as can be: one dictionary, one thing after another.

Written from contract.md sections 1, 2, 3 and 5 alone, so that it shares no mistake with `rules`:
it knows nothing of read sets, drafts and places.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tasks_app.core.operations import Claim, Commit, Duplicate, Operation, Prohibited, TaskRecord
from taskstore.types.tasks import Change, Ending, NewTask, Refusal


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What became of an id."""

    id: int
    ending: Ending
    successor: int | None
    by: int


@dataclass
class Holder:
    """The chain that has a key, or that had it when it ended."""

    origin: int
    until_ms: int
    last: TaskRecord | None = None  # What it ended as; None: it lives.


@dataclass
class NaiveStore:
    now_ms: int = 1_000_000
    last_id: int = 0
    last_commit: int = 0
    tasks: dict[int, TaskRecord] = field(default_factory=dict)
    keys: dict[tuple[str, str], Holder] = field(default_factory=dict)  # By group and key.
    trail: list[Ended] = field(default_factory=list)
    runs: list[tuple[str, int]] = field(default_factory=list)  # Group and running time in ms of what holders ended.
    done: Counter[int] = field(default_factory=Counter)  # By client: what they ended and did not give back.

    def perform(self, operation: Operation, claimable: Iterable[int] | None = None) -> list[TaskRecord] | Refusal:
        """Do one operation. A claim takes tasks among `claimable` only, if that is given."""
        if isinstance(operation, Claim):
            return self.claim(operation, self.tasks if claimable is None else claimable)
        return self.commit(operation)

    def commit(self, commit: Commit) -> list[TaskRecord] | Refusal:
        if not all(commit.scope.allows(group) for group in self.groups_put_into(commit)):
            return Prohibited(forbidden=("",))
        refusal = self.reasons_against(commit)
        if refusal != Refusal():
            return refusal
        self.last_commit += 1
        before = {task.origin: task for task in self.tasks.values()}
        removed = {task_id: self.tasks.pop(task_id) for task_id in commit.changed_ids}
        for task_id in set(commit.deletes) - {add.id for add in commit.adds}:
            self.free_key(removed[task_id])
        duplicates: dict[int, Holder] = {}
        moved_to: dict[int, TaskRecord] = {}
        moving: dict[int, Change] = {}
        made: list[Any] = []
        for add in commit.adds:
            replaced = add.id if add.id in commit.deletes and add.id not in moved_to else None
            holder = self.keys.get((add.group, add.unique)) if add.unique and replaced is None else None
            if holder and (holder.last is None or holder.until_ms > self.now_ms):
                duplicates[len(made)] = holder
                made.append(None)
                continue
            if replaced is not None and add.moving:
                made.append(self.changed(removed[replaced], add.moving, commit.owner))
                moving[replaced] = add.moving
            else:
                made.append(self.added(add, commit.owner, removed[replaced] if replaced is not None else None))
            if replaced is not None:
                moved_to[replaced] = made[-1]
            elif add.unique:
                until_ms = self.now_ms + add.unique_for_ms if add.unique_for_ms else 0
                self.keys[add.group, add.unique] = Holder(made[-1].origin, until_ms)
        for change in commit.updates:
            made.append(self.changed(removed[change.id], change, commit.owner))
            ending = why_changed(removed[change.id], made[-1], change, commit)
            if made[-1].leased_since_ms == 0:
                self.end_run(removed[change.id], ending, commit)
            self.end(removed[change.id], ending, made[-1], commit)
        for task_id in commit.deletes:
            successor = moved_to.get(task_id)
            if successor and task_id in moving:
                ending = why_changed(removed[task_id], successor, moving[task_id], commit)
            else:
                ending = why_deleted(removed[task_id], successor, commit)
            if successor is None or successor.leased_since_ms == 0:
                self.end_run(removed[task_id], ending, commit)
            self.end(removed[task_id], ending, successor, commit)
        for place, holder in duplicates.items():
            made[place] = self.duplicate(holder, commit, removed, before)
        return made

    def free_key(self, ended: TaskRecord) -> None:
        for key, holder in list(self.keys.items()):
            if holder.origin == ended.origin and holder.last is None:
                holder.last = ended
                if holder.until_ms <= self.now_ms:
                    del self.keys[key]

    def duplicate(self, holder: Holder, commit: Commit, removed, before) -> TaskRecord:
        """What the place of an add shows whose key is taken."""
        if holder.last:
            is_seen = commit.scope.allows(holder.last.group)
            return Duplicate.without_task(holder.last.id, "", holder.origin) if is_seen else Duplicate.without_task()
        [living] = [task for task in self.tasks.values() if task.origin == holder.origin]
        was = before.get(holder.origin)
        is_own = was is None or was.id in removed
        is_seen = is_own or commit.scope.allows(living.group)
        return Duplicate.of(living) if is_seen else Duplicate.without_task()

    def claim(self, claim: Claim, claimable: Iterable[int]) -> list[TaskRecord] | Refusal:
        missing = tuple(self.absent(claim.depends, claim))
        if missing:
            return Refusal(depends=missing)
        available = [
            task
            for task in self.tasks.values()
            if task.id in set(claimable)
            and task.group in claim.groups
            and claim.scope.allows(task.group)
            and task.available_at_ms <= self.now_ms
        ]
        available.sort(key=lambda task: (-task.priority, task.available_at_ms, task.id))
        if available:
            self.last_commit += 1
        made = []
        for task in available[: claim.limit]:
            del self.tasks[task.id]
            lease_ms = claim.duration_ms if claim.duration_ms > 0 else 0
            made.append(
                self.keep(
                    group=task.group,
                    available_at_ms=self.now_ms + lease_ms,
                    owner=claim.owner,
                    data=task.data,
                    data_type=task.data_type,
                    error=task.error,
                    labels=task.labels,
                    priority=task.priority,
                    origin=task.origin,
                    claims=task.claims + 1,
                    leased_since_ms=self.now_ms,
                    created_at_ms=task.created_at_ms,
                    unique=task.unique,
                )
            )
            self.end(task, Ending.CLAIMED, made[-1], claim)
        return made

    def reasons_against(self, commit: Commit) -> Refusal:
        named = commit.changed_ids
        return Refusal(
            changes=tuple(self.absent([change.id for change in commit.updates], commit)),
            deletes=tuple(self.absent(commit.deletes, commit)),
            depends=tuple(self.absent(commit.depends, commit)),
            owned=tuple(self.held_by_others(commit)) if commit.operator is None else (),
            bugs=("nothing to do",) * (not commit.adds and not named)
            + ("no group",) * sum(add.group == "" for add in commit.adds)
            + ("named twice",) * sum(times > 1 for times in Counter(named).values()),
        )

    def groups_put_into(self, commit: Commit) -> Iterable[str]:
        yield from (add.group for add in commit.adds if add.group)
        for change in (*commit.updates, *[add.moving for add in commit.adds if add.moving]):
            if change.group and not self.absent([change.id], commit):
                yield change.group

    def absent(self, ids: Iterable[int], asked: Operation) -> list[int]:
        found: list[int] = []
        for task_id in ids:
            is_there = task_id in self.tasks and asked.scope.allows(self.tasks[task_id].group)
            if not is_there and task_id not in found:
                found.append(task_id)
        return found

    def held_by_others(self, commit: Commit) -> list[int]:
        found: list[int] = []
        for task_id in commit.changed_ids:
            if self.absent([task_id], commit) or task_id in found:
                continue
            task = self.tasks[task_id]
            if task.available_at_ms > self.now_ms and task.owner != commit.owner:
                found.append(task_id)
        return found

    def added(self, add: NewTask, owner: int, replaced: TaskRecord | None) -> TaskRecord:
        return self.keep(
            group=add.group,
            available_at_ms=self.moment(add.timespec_ms),
            owner=owner,
            data=add.data,
            data_type=add.data_type,
            error=add.error,
            labels=labels_with(add.labels, source_of(replaced, add.group, add.error, "set") if replaced else ""),
            priority=add.priority,
            origin=replaced.origin if replaced else None,
            claims=replaced.claims if replaced else 0,
            leased_since_ms=0,
            created_at_ms=replaced.created_at_ms if replaced else self.now_ms,
            unique=replaced.unique if replaced else add.unique or "",
        )

    def changed(self, task: TaskRecord, change: Change, owner: int) -> TaskRecord:
        moment = self.moment(change.timespec_ms)
        group = change.group if change.group is not None else task.group
        error = task.error if change.error is None else change.error
        labels = change.labels if change.labels is not None else task.labels
        return self.keep(
            group=group,
            available_at_ms=moment,
            owner=0 if change.release else owner,
            data=change.data if change.data is not None else task.data,
            data_type=self.type_after(task, change),
            error=error,
            labels=labels_with(labels, source_of(task, group, error, "kept" if change.error is None else "set")),
            priority=change.priority if change.priority is not None else task.priority,
            origin=task.origin,
            claims=task.claims,
            leased_since_ms=self.lease_begin(task, owner) if not change.release and moment > self.now_ms else 0,
            created_at_ms=task.created_at_ms,
            unique=task.unique,
        )

    def type_after(self, task: TaskRecord, change: Change) -> str:
        if change.data_type is None and change.data is None:
            return task.data_type
        return change.data_type or ""

    def lease_begin(self, task: TaskRecord, owner: int) -> int:
        is_held_already = task.leased_since_ms != 0 and task.owner == owner
        return task.leased_since_ms if is_held_already else self.now_ms

    def moment(self, timespec_ms: int) -> int:
        if timespec_ms == 0:
            return self.now_ms
        return self.now_ms + abs(timespec_ms) if timespec_ms < 0 else timespec_ms

    def keep(self, *, origin, **columns) -> TaskRecord:
        """Give the task the next id; without an origin it is the first of its chain."""
        self.last_id += 1
        task = TaskRecord(
            id=self.last_id,
            origin=self.last_id if origin is None else origin,
            made_at_ms=self.now_ms,
            made_by_commit=self.last_commit,
            # The model has no groups with records of jobs and commands.
            standing=3 if "failed_from" in columns["labels"] else 2 if columns["error"] else 0,
            **columns,
        )
        self.tasks[task.id] = task
        return task

    def end(self, task: TaskRecord, ending: Ending, successor: TaskRecord | None, asked: Operation) -> None:
        self.trail.append(
            Ended(id=task.id, ending=ending, successor=successor.id if successor else None, by=asked.owner)
        )

    def end_run(self, task: TaskRecord, ending: Ending, commit: Commit) -> None:
        if task.leased_since_ms and task.owner == commit.owner and not commit.operator:
            self.runs.append((task.group, self.now_ms - task.leased_since_ms))
            self.done[task.owner] += ending != Ending.GIVEN_BACK


def source_of(task: TaskRecord, group: str, error: str, how: str) -> str:
    """Where a dead letter comes from; empty for any other task."""
    before = task.labels.get("failed_from", "")
    stays, returns = group == task.group, group == before
    if stays or (before and error and not returns):
        return before
    return task.group if error and how == "set" and not returns else ""


def labels_with(labels, source: str):
    others = {name: value for name, value in labels.items() if name != "failed_from"}
    return others | {"failed_from": source} if source else others


def why_changed(task: TaskRecord, successor: TaskRecord, change: Change, commit: Commit) -> Ending:
    if successor.group != task.group:
        return Ending.MOVED
    if commit.operator is not None:
        return commit.operator.ending
    if change.release:
        return Ending.GIVEN_BACK
    if change.data is None and task.leased and successor.leased and successor.owner == task.owner:
        return Ending.RENEWED
    return Ending.CHANGED


def why_deleted(task: TaskRecord, successor: TaskRecord | None, commit: Commit) -> Ending:
    if successor is not None:
        return Ending.MOVED if successor.group != task.group else Ending.CHANGED
    return commit.operator.ending if commit.operator else Ending.DELETED
