"""The rules for operations, and their effects: pure, no database, no clock, no Django.

Every way into the store ends here. Source: contract.md sections 2 and 3.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from taskstore.types.schedules import RIGHTS_OF, SCHEDULES
from taskstore.types.tasks import (
    COMMAND_GROUPS,
    FAILED_FROM,
    NOBODY,
    PLAIN,
    Change,
    Ending,
    NewTask,
    Problem,
    Refusal,
    holds_results,
    standing_of,
)

from .batches import Batches
from .limits import Allowance, leases
from .operations import (
    Apart,
    Claim,
    Commit,
    Duplicate,
    Effect,
    GroupScope,
    HeldKey,
    Key,
    Operation,
    OtherKey,
    Prohibited,
    PutOff,
    Query,
    Removal,
    TaskRecord,
    Update,
    record_made_of,
    why_may_not_add,
    why_out_of_reach,
)
from .room import LARGE_BYTES, Place, answer_size, fitting

Answer = Effect | Refusal | PutOff


class World:
    """The view of the operations in one transaction: the time, the tasks they name, the tasks they may claim.

    `candidates` holds for each group the tasks that were locked to be claimed, the best first; `earliest`
    those that were locked for queries, the longest available first. `keys` holds the keys that adds name and that are
    held, or kept; `holders` the living tasks that hold them, by origin. `allowances` are those of the groups with
    limits that the operations claim from, or lease tasks in; `batches` those that they concern.
    """

    def __init__(
        self,
        now_ms: int,
        named: Mapping[int, TaskRecord],
        candidates: Mapping[str, Sequence[TaskRecord]] | None = None,
        earliest: Mapping[str, Sequence[TaskRecord]] | None = None,
        *,
        keys: Mapping[Key, HeldKey] | None = None,
        holders: Mapping[int, TaskRecord] | None = None,
        allowances: Mapping[str, Allowance] | None = None,
        batches: Batches | None = None,
        place_for: Callable[[int], Place | None] | None = None,
        most_bytes: int = 2**63,
    ) -> None:
        self.now_ms = now_ms
        self._named = named
        self._candidates = {group: deque(tasks) for group, tasks in (candidates or {}).items()}
        self._earliest = {group: deque(tasks) for group, tasks in (earliest or {}).items()}
        self._gone: set[int] = set()
        self._keys = dict(keys or {})
        self._holders = holders or {}
        self._taken: set[Key] = set()  # By operations before this one.
        self.allowances = allowances or {}
        self.batches = batches
        self._place_for = place_for
        self._most_bytes = most_bytes

    def find(self, task_id: int, scope: GroupScope) -> TaskRecord | None:
        """The task, or None when it is gone or lies in a group that the asker may not touch."""
        task = self._named.get(task_id)
        if task is None or task_id in self._gone or not scope.allows(task.group):
            return None
        return task

    def claimable(self, claim: Claim) -> list[TaskRecord]:
        """The tasks that the claim takes, the best first: as many as it wants, if there are so many."""
        groups = claim.groups if claim.scope.patterns is None else claim.reachable
        if len(groups) != 1:
            return list(islice(self._in_turn(claim), claim.limit))
        found: list[TaskRecord] = []
        tasks = self._candidates.get(groups[0])
        while tasks and len(found) < claim.limit:
            task = tasks.popleft()
            if task.id not in self._gone and task.available_at_ms <= self.now_ms and self._is_allowed(task):
                found.append(task)
        return found

    def _is_allowed(self, task: TaskRecord) -> bool:
        """Whether the limit of its group, if there is one, allows the claim, which counts from now on."""
        return not self.allowances or task.group not in self.allowances or self.allowances[task.group].takes(task)

    def fitting(self, tasks: list[TaskRecord]) -> list[TaskRecord]:
        """Those of the claimable tasks that an answer has room for. The others are claimable still."""
        number = fitting(tasks, self._most_bytes) if len(tasks) > 1 else len(tasks)
        for task in reversed(tasks[number:]):
            self._candidates[task.group].appendleft(task)
            if task.group in self.allowances:
                self.allowances[task.group].returns(task)
        return tasks[:number] if number < len(tasks) else tasks

    def with_place(self, effect: Effect) -> Effect | PutOff:
        """The effect with a place for its answer, if that is large."""
        size = answer_size(effect.answer([*effect.drafts]))
        if self._place_for is None or size <= LARGE_BYTES:
            return effect
        place = self._place_for(size)
        return PutOff.ROOM if place is None else effect._replace(place=place)

    def _in_turn(self, claim: Claim) -> Iterator[TaskRecord]:
        """The tasks of several groups that may be claimed, the best first. Each is handed out once."""
        reachable = claim.reachable
        groups = [group for group in self._candidates if group in reachable]
        while groups := [group for group in groups if self._candidates[group]]:
            best = groups[0]
            if len(groups) > 1:
                best = max(groups, key=lambda group: self._candidates[group][0].priority)
            task = self._candidates[best].popleft()
            if task.id in self._gone or task.available_at_ms > self.now_ms or not self._is_allowed(task):
                continue
            if len(groups) > 1:
                # The groups take turns: within this claim, and from claim to claim.
                groups.append(groups.pop(groups.index(best)))
                self._candidates[best] = self._candidates.pop(best)
            yield task

    def queried(self, query: Query) -> Iterator[TaskRecord]:
        """The tasks that the query may take, the longest available first."""
        moment_ms = query.at_ms or self.now_ms
        for tasks in [self._earliest[group] for group in query.reachable if group in self._earliest]:
            while tasks and tasks[0].id in self._gone:
                tasks.popleft()  # They are many, when a batch holds many queries.
            for task in tasks:
                if task.id in self._gone or task.available_at_ms > moment_ms or is_held(task, self.now_ms):
                    continue
                if self._is_allowed(task):
                    yield task

    def holder_of(self, key: Key, freed: Mapping[int, Removal]) -> TaskRecord | HeldKey | PutOff | None:
        """Who holds the key: a living task, a chain that has ended, or nobody. `freed`: chains that end now."""
        if key in self._taken:
            return PutOff.KEY
        held = self._keys.get(key)
        if held is None:
            return None
        if end := freed.get(held.origin):
            held = _kept(held, end)
        if held.ended:
            return held if held.until_ms > self.now_ms else None
        task = self._holders.get(held.origin)
        # Where it is not there, its chain goes on or has ended meanwhile.
        return PutOff.KEY if task is None or task.id in self._gone else task

    def take(self, effect: Effect) -> None:
        self._gone.update([removal.task.id for removal in effect.removals])
        for allowance in self.allowances.values():
            allowance.follow(effect)
        if self._keys:
            freed = freed_by(effect)
            for key, held in self._keys.items():
                if end := freed.get(held.origin):
                    self._keys[key] = _kept(held, end)
        self._taken.update([(held.group, held.key) for _, held in effect.taken])


def freed_by(effect: Effect) -> dict[int, Removal]:
    """The chains with a key that end by the effect, by origin."""
    return {
        removal.task.origin: removal
        for removal in effect.removals
        if removal.task.unique and (removal.successor is None or not effect.drafts[removal.successor].unique)
    }


def _kept(held: HeldKey, end: Removal) -> HeldKey:
    """The key once its chain has ended."""
    return held._replace(ended=end.task.id, ending=end.ending.value, ended_in=end.task.group)


def decide(operations: Sequence[Operation], world: World) -> list[Answer]:
    """Say what comes of each operation, in order, each seeing what the ones before it left.

    A refused operation changes nothing, nor does one that is put off. The answers are in the order of the operations.
    """
    answers: list[Answer] = []
    for operation in operations:
        # Nearly all commits finish a task, and nothing is against it: then no reason is asked for twice.
        answer = _effect_of_deletions(operation, world) or refusal_of(operation, world) or _effect_of(operation, world)
        if isinstance(answer, Effect) and operation.is_told and (answer.drafts or answer.places):
            answer = world.with_place(answer)
        if isinstance(answer, Effect):
            if world.batches is not None and isinstance(operation, Commit):
                answer = world.batches.follow(operation, answer, world.now_ms, partial(_planned, world))
            world.take(answer)
        answers.append(answer)
    return answers


def _effect_of_deletions(operation: Operation, world: World) -> Effect | None:
    """What a worker's commit does that only deletes, in one pass; None for any other, and where anything is unusual.

    It is what `refusal_of` and `_effect_of` say, and a test compares them.
    """
    if not isinstance(operation, Commit):
        return None
    scope, owner, deletes = operation.scope, operation.owner, operation.deletes
    if operation.adds or operation.updates or operation.depends or operation.operator:
        return None
    if not deletes or (len(deletes) > 1 and len(set(deletes)) < len(deletes)):
        return None
    removals = []
    for task_id in deletes:
        task = world.find(task_id, scope)
        if task is None or (task.available_at_ms > world.now_ms and task.owner != owner):
            return None
        if scope.no_commands_because and scope.why_forbidden(task.group):
            return None
        if task.group == SCHEDULES and scope.is_restricted:
            return None
        removals.append(Removal(task, Ending.DELETED))
    return Effect(tuple(removals), (), owner)


def refusal_of(operation: Operation, world: World) -> Refusal | None:
    """Every reason against the operation, or None."""
    if isinstance(operation, Claim) and not operation.depends:
        return None
    depends = _missing(operation.depends, operation.scope, world)
    if isinstance(operation, Claim):
        return Refusal(depends=depends) if depends else None
    changes = _missing([change.id for change in operation.updates], operation.scope, world)
    deletes = _missing(operation.deletes, operation.scope, world)
    owned = _owned_by_others(operation, world)
    bugs = (*_bugs(operation), *_beyond_limits(operation, world))
    if world.batches is not None:
        bugs += tuple(world.batches.problems(operation))
    forbidden = _forbidden(operation, world) if operation.scope.is_restricted else ()
    if forbidden:
        return Prohibited(forbidden=forbidden)
    if not (changes or deletes or depends or owned or bugs):
        if (operation.updates or operation.deletes) and (wrong := tuple(_other_keys(operation, world))):
            return OtherKey(wrong=wrong)
        return None  # Nearly always: no refusal is made only to be asked whether it is one.
    return Refusal(changes=changes, deletes=deletes, depends=depends, owned=owned, bugs=bugs)


def _other_keys(commit: Commit, world: World) -> Iterator[Problem]:
    """Where a successor was to get a key that is not the one that its task holds."""
    named: list[tuple[str, NewTask | Change]] = [
        (f"updates[{place}]", change) for place, change in enumerate(commit.updates) if change.unique is not None
    ]
    named += [(f"adds[{place}]", add) for place, add in enumerate(commit.adds) if add.id and add.unique is not None]
    for path, item in named:
        task = world.find(item.id, commit.scope)
        if task is not None and item.unique != task.unique:
            right = (
                f'"{task.unique}" or absent: a successor keeps its key'
                if task.unique
                else "absent: the task has no key"
            )
            yield f"{path}.unique", f"must be {right}"


def _missing(ids: Sequence[int], scope: GroupScope, world: World) -> tuple[int, ...]:
    return () if not ids else tuple([task_id for task_id in dict.fromkeys(ids) if world.find(task_id, scope) is None])


def _owned_by_others(commit: Commit, world: World) -> tuple[int, ...]:
    tasks = [world.find(task_id, commit.scope) for task_id in dict.fromkeys(_respected_ids(commit))]
    if commit.operator is not None:  # Only leases are protected from those who cancel.
        tasks = [task for task in tasks if task is not None and task.leased]
    return tuple(
        [
            task.id
            for task in tasks
            if task is not None and task.available_at_ms > world.now_ms and task.owner != commit.owner
        ]
    )


def _respected_ids(commit: Commit) -> Iterable[int]:
    """The ids of the tasks whose owners have a say."""
    if commit.operator is None or not commit.operator.overrides:
        return commit.changed_ids
    if not isinstance(commit, Update):
        return ()
    return [task_id for task_id in commit.deletes if task_id not in commit.matched]


def _forbidden(commit: Commit, world: World) -> tuple[str, ...]:
    """Why tasks that it names may not be changed by this client, or schedules not be what it makes of them."""
    scope = commit.scope
    ids: Iterable[int] = commit.changed_ids
    if commit.operator and commit.operator.overrides:
        # Operators may delete every task, also in groups to which they may not add.
        ended = {*commit.deletes} - {add.id for add in commit.adds}
        ids = [task_id for task_id in ids if task_id not in ended]
    made: list[tuple[str, bytes | Apart]] = []
    made += [(add.group, add.data) for add in commit.adds if add.group or isinstance(commit, Update)]
    # To end a schedule, or to move it away, is as much a change of what it feeds.
    made += [(task.group, task.data) for task_id in ids if (task := world.find(task_id, scope))]
    for change in (*commit.updates, *[add.moving for add in commit.adds if add.moving]):
        if task := world.find(change.id, scope):
            made.append((change.group or task.group, task.data if change.data is None else change.data))
    reasons = {scope.why_out_of_reach(group) for group in {group for group, _ in made}}
    reasons |= {why_may_not_add(group, data, scope) for group, data in made if group == SCHEDULES}
    if commit.batch:
        reasons.add(why_out_of_reach(scope, commit.batch.plan.reached))
    return tuple(sorted(reasons - {""}))


def is_held(task: TaskRecord, now_ms: int) -> bool:
    """Whether somebody's lease, by the store's clock, keeps the task from queries, whatever time their clients have."""
    return task.leased and task.available_at_ms > now_ms and task.owner != NOBODY


def _bugs(commit: Commit) -> Iterable[str]:
    if not (commit.adds or commit.updates or commit.deletes or commit.batch or isinstance(commit, Update)):
        yield "nothing to do: name at least one add, update or delete"
    for place, add in enumerate(commit.adds):
        if not (add.group or isinstance(commit, Update)):
            yield f"adds[{place}] has no group: name a group for the task"
    named = commit.changed_ids
    for task_id, times in Counter(named).items() if len(set(named)) < len(named) else ():
        if times > 1:
            yield f"task {task_id} is named {times} times within updates and deletes: name it once"


def _beyond_limits(commit: Commit, world: World) -> Iterator[str]:
    """Which updates lease tasks that nobody holds, though the limits of their groups allow no more of them."""
    if not world.allowances:
        return
    slots: dict[tuple[str, str], int] = {}
    ended = [task for task_id in commit.deletes if (task := world.find(task_id, commit.scope))]
    changed = [(place, change, world.find(change.id, commit.scope)) for place, change in enumerate(commit.updates)]
    ended += [task for _, change, task in changed if task and change.release]
    for task in ended:
        if task.leased and (allowance := world.allowances.get(task.group)):
            slot = task.group, allowance.limit.value_of(task.labels)
            slots[slot] = slots.get(slot, allowance.slots(slot[1])) + 1
    for place, change, task in changed:
        if task is None or not leases(change, task) or available_at(change.timespec_ms, world.now_ms) <= world.now_ms:
            continue
        group = task.group if change.group is None else change.group
        if allowance := world.allowances.get(group):
            slot = group, allowance.limit.value_of(task.labels if change.labels is None else change.labels)
            slots[slot] = slots.get(slot, allowance.slots(slot[1])) - 1
            if slots[slot] < 0:
                running = allowance.limit.running
                yield f'updates[{place}] leases a task of "{group}", where a limit allows {running} at once: try later'


def _effect_of(operation: Operation, world: World) -> Effect | PutOff:
    if isinstance(operation, Claim):
        return _effect_of_claim(operation, world)
    return _effect_of_commit(operation, world)


def _effect_of_claim(claim: Claim, world: World) -> Effect:
    """The effect of a claim: each successor keeps everything but id, owner, available time and claims."""
    is_truncated = False
    if isinstance(claim, Query):
        chosen, begin_ms = list(islice(world.queried(claim), claim.limit)), claim.at_ms or world.now_ms
    else:
        found, begin_ms = world.claimable(claim), world.now_ms
        chosen = world.fitting(found)
        is_truncated = len(chosen) < len(found)
    available_at_ms = begin_ms + max(claim.duration_ms, 0)
    return Effect(
        removals=tuple([Removal(task, Ending.CLAIMED, successor) for successor, task in enumerate(chosen)]),
        drafts=tuple([_leased(task, world.now_ms, available_at_ms, claim.owner) for task in chosen]),
        owner=claim.owner,
        is_truncated=is_truncated,
    )


def _leased(task: TaskRecord, now_ms: int, available_at_ms: int, owner: int) -> TaskRecord:
    # As `_successor` would make it, in a third of the time.
    _, group, _, _, data, kind, error, labels, priority, origin, claims, _, created_ms, _, _, payload, *rest = task
    kept = (data, kind, error, labels, priority, origin, claims + 1, now_ms, created_ms, now_ms, 0, payload, *rest)
    return record_made_of((0, group, available_at_ms, owner, *kept))


def _effect_of_commit(commit: Commit, world: World) -> Effect | PutOff:
    effect = _effect_of_all(commit, world)
    for add in commit.adds:
        if add.unique:
            return _without_duplicates(commit, effect, world)
    return effect


def _without_duplicates(commit: Commit, effect: Effect, world: World) -> Effect | PutOff:
    """The effect of a commit without the adds whose keys are taken. Its deletes count before its adds."""
    freed = freed_by(effect)
    # The holders that the commit itself replaces.
    replaced = {
        removal.task.id: removal.successor
        for removal in effect.removals
        if removal.successor is not None and removal.task.origin not in freed
    }
    successors = {removal.successor for removal in effect.removals}
    taken: dict[Key, tuple[int, HeldKey]] = {}
    holders: dict[int, int | Duplicate] = {}  # By the place of the add that is not made; a number: of a draft.
    for place, add in enumerate(commit.adds):
        key = add.key
        if key is None or place in successors:
            continue
        if key in taken:
            holders[place] = taken[key][0]
            continue
        holder = world.holder_of(key, freed)
        origin = add.origin.id if add.origin else 0
        if isinstance(holder, PutOff):
            return holder
        if isinstance(holder, TaskRecord):
            is_seen = commit.scope.allows(holder.group)
            living = Duplicate.of(holder) if is_seen else Duplicate.without_task()
            holders[place] = replaced.get(holder.id, living)
        elif holder and holder.origin != origin:
            is_seen = commit.scope.allows(holder.ended_in)
            ended = Duplicate.without_task(holder.ended, holder.ending, holder.origin)
            holders[place] = ended if is_seen else Duplicate.without_task()
        else:
            # A chain that comes back takes its own key, for as long as it was kept.
            until_ms = holder.until_ms if holder else world.now_ms + add.unique_for_ms if add.unique_for_ms else 0
            taken[key] = place, HeldKey(*key, origin, until_ms)
    made = [place for place in range(len(effect.drafts)) if place not in holders]
    now_at = {place: number for number, place in enumerate(made)}
    return effect._replace(
        drafts=tuple([effect.drafts[place] for place in made]),
        removals=tuple(
            [
                removal if removal.successor is None else removal._replace(successor=now_at[removal.successor])
                for removal in effect.removals
            ]
        ),
        taken=tuple([(now_at[place], held) for place, held in taken.values()]),
        places=tuple([_place_of(place, holders, now_at) for place in range(len(effect.drafts))]) if holders else None,
    )


def _place_of(place: int, holders: Mapping[int, int | Duplicate], now_at: Mapping[int, int]) -> int | Duplicate:
    """As in Effect.places."""
    if place not in holders:
        return now_at[place]
    holder = holders[place]
    return holder if isinstance(holder, Duplicate) else -now_at[holder] - 1


def _effect_of_all(commit: Commit, world: World) -> Effect:
    """The effect of the commit if no key is taken."""
    successors = _successors_among(commit.adds, commit.deletes)
    first_places = frozenset(successors.values())  # Not looked for among the values for each add: that is quadratic.
    adds = [
        _added(add, commit, world, world.find(add.id, commit.scope) if place in first_places else None)
        for place, add in enumerate(commit.adds)
    ]
    replaced = [(task, change) for change in commit.updates if (task := world.find(change.id, commit.scope))]
    deleted = [task for task_id in commit.deletes if (task := world.find(task_id, commit.scope))]
    drafts = adds + [_updated(task, change, commit, world.now_ms) for task, change in replaced]
    return Effect(
        removals=tuple(
            Removal(task=task, ending=_ending(task, drafts[place], change, commit), successor=place)
            for place, (task, change) in enumerate(replaced, start=len(adds))
        )
        + tuple(_deletion(task, successors.get(task.id), drafts, commit) for task in deleted),
        drafts=tuple(drafts),
        owner=commit.owner,
        operator=commit.operator,
    )


def _successors_among(adds: Sequence[NewTask], deletes: Sequence[int]) -> dict[int, int]:
    """For each deleted id that an add names: the place of the first such add. A chain never branches."""
    deleted = set(deletes)
    places: dict[int, int] = {}
    for place, add in enumerate(adds):
        if add.id in deleted:
            places.setdefault(add.id, place)
    return places


def _added(add: NewTask, commit: Commit, world: World, replaces: TaskRecord | None) -> TaskRecord:
    labels = _with_source(add.labels, _source_of_add(add, replaces))
    if add.group == SCHEDULES and commit.scope.holder and add.origin is None:  # An undo restores it as it was.
        labels = {**labels, RIGHTS_OF: commit.scope.holder}
    draft = TaskRecord(
        id=0,
        group=add.group,
        available_at_ms=available_at(add.timespec_ms, world.now_ms) if add.at_ms is None else add.at_ms,
        owner=commit.owner,
        data=add.data,
        data_type=add.data_type,
        error=add.error,
        labels=labels,
        priority=add.priority,
        origin=0,
        claims=0,
        leased_since_ms=0,
        created_at_ms=world.now_ms,
        made_at_ms=world.now_ms,
        made_by_commit=0,
        unique=add.unique or "" if replaces is None else _key_in(add.group, replaces),
        standing=standing_of(add.group, add.error, labels),
        batch=add.batch if replaces is None else replaces.batch,
    )
    if replaces is not None and add.moving is not None:
        return _updated(replaces, add.moving, commit, world.now_ms)
    if replaces is not None:
        draft = draft._replace(origin=replaces.origin, claims=replaces.claims, created_at_ms=replaces.created_at_ms)
        return _carried_on(draft, replaces, world.now_ms) if isinstance(commit, Update) else draft
    if add.origin is not None:
        return draft._replace(origin=add.origin.id, claims=add.origin.claims, created_at_ms=add.origin.created_at_ms)
    return draft


def _planned(world: World, add: NewTask, holder: str) -> TaskRecord:
    """The draft of a task that a batch adds, with the rights of this holder."""
    return _added(add, Commit(owner=NOBODY, scope=GroupScope(holder=holder)), world, None)


def _source_of_add(add: NewTask, replaces: TaskRecord | None) -> str:
    return add.failed_from if replaces is None else _source(replaces, add.group, add.error, sets_error=True)


def _source(task: TaskRecord, group: str, error: str, *, sets_error: bool) -> str:
    """The group that the task has failed in, once it is in this one with this error; empty: it is no dead letter.

    Whoever moves it on by hand moves a dead letter still: it can always be sent back to where it came from.
    """
    known = task.failed_from
    if group == task.group:
        return known
    if not error or group == known:
        return ""
    # What has ended as a job or as a command is run again in ways of its own.
    has_ended = group.startswith(COMMAND_GROUPS) or holds_results(group) or holds_results(task.group)
    is_dead_letter = sets_error and not has_ended
    return known or (task.group if is_dead_letter else "")


def _with_source(labels: Mapping[str, str], source: str) -> Mapping[str, str]:
    """The labels, of which `failed_from` says this and nothing else. Nobody else's word for it counts."""
    if labels.get(FAILED_FROM, "") == source and (source or FAILED_FROM not in labels):
        return labels
    others = {name: value for name, value in labels.items() if name != FAILED_FROM}
    return {**others, FAILED_FROM: source} if source else others


def _carried_on(draft: TaskRecord, replaces: TaskRecord, now_ms: int) -> TaskRecord:
    """With what MassTasker's messages can't say of a successor. Data that is still the same is not written again."""
    is_leased = replaces.leased and draft.available_at_ms > now_ms
    return draft._replace(
        **{name: getattr(replaces, name) for name in PLAIN},
        leased_since_ms=_lease_begin(replaces, draft.owner, now_ms) if is_leased else 0,
        payload=replaces.payload if draft.data == replaces.data else 0,
    )


def _updated(task: TaskRecord, change: Change, commit: Commit, now_ms: int) -> TaskRecord:
    """Return the successor. A schedule adds with the rights of the client that changed its content last."""
    draft = _changed(task, change, commit.owner, now_ms)
    is_bulk = commit.operator is not None and commit.operator.bulk and task.group == SCHEDULES
    if draft.group == SCHEDULES and commit.scope.holder and not is_bulk:
        says_more = (change.data, change.labels, change.group) != (None, None, None)
        holder = commit.scope.holder if says_more else task.labels.get(RIGHTS_OF, "")
        return draft._replace(labels={**draft.labels, RIGHTS_OF: holder}) if holder else draft
    return draft


def _changed(task: TaskRecord, change: Change, owner: int, now_ms: int) -> TaskRecord:
    available_at_ms = available_at(change.timespec_ms, now_ms)
    group = task.group if change.group is None else change.group
    error = task.error if change.error is None else change.error
    labels = task.labels if change.labels is None else change.labels
    source = change.failed_from
    if source is None:
        source = _source(task, group, error, sets_error=change.error is not None)
    labels = _with_source(labels, source)
    return _successor(
        task,
        now_ms,
        group=group,
        available_at_ms=available_at_ms,
        owner=0 if change.release else owner,
        data=task.data if change.data is None else change.data,
        data_type=_data_type(task, change),
        payload=task.payload if change.data is None else 0,
        error=error,
        labels=labels,
        priority=task.priority if change.priority is None else change.priority,
        unique=_key_in(group, task),
        standing=standing_of(group, error, labels),
        leased_since_ms=_lease_begin(task, owner, now_ms) if available_at_ms > now_ms and not change.release else 0,
    )


def _key_in(group: str, task: TaskRecord) -> str:
    """The key of a successor in this group. A task that moves to the finished jobs or commands has ended."""
    return "" if task.unique and holds_results(group) else task.unique


def _data_type(task: TaskRecord, change: Change) -> str:
    if change.data_type is not None:
        return change.data_type
    return task.data_type if change.data is None else ""


def _lease_begin(task: TaskRecord, owner: int, now_ms: int) -> int:
    """When the lease began that a change of the task leaves: its owner goes on with the one that there was."""
    return task.leased_since_ms if task.leased and task.owner == owner else now_ms


def _successor(task: TaskRecord, now_ms: int, **changed: Any) -> TaskRecord:
    return task._replace(id=0, made_by_commit=0, made_at_ms=now_ms, **changed)


def available_at(timespec_ms: int, now_ms: int) -> int:
    """0: now. Negative: now plus its absolute value. Positive: that very time."""
    return timespec_ms if timespec_ms > 0 else now_ms - timespec_ms


def _ending(task: TaskRecord, successor: TaskRecord, change: Change, commit: Commit) -> Ending:
    if successor.group != task.group:
        said = commit.operator.ending if commit.operator else Ending.MOVED
        return said if said in (Ending.REQUEUED, Ending.CANCELLED) else Ending.MOVED
    if commit.operator is not None:
        return commit.operator.ending
    if change.release:
        return Ending.GIVEN_BACK
    is_renewal = task.leased and successor.leased and task.owner == successor.owner and change.data is None
    return Ending.RENEWED if is_renewal else Ending.CHANGED


def _deletion(task: TaskRecord, successor: int | None, drafts: Sequence[TaskRecord], commit: Commit) -> Removal:
    if successor is not None:
        moving = commit.adds[successor].moving
        draft = drafts[successor]
        ending = _ending(task, draft, moving, commit) if moving else _ending_by_add(task, draft)
    else:
        ending = Ending.DELETED if commit.operator is None else commit.operator.ending
    return Removal(task=task, ending=ending, successor=successor)


def _ending_by_add(task: TaskRecord, successor: TaskRecord) -> Ending:
    if successor.group != task.group:
        return Ending.MOVED
    is_renewal = successor.leased and task.owner == successor.owner and task.data == successor.data
    return Ending.RENEWED if is_renewal else Ending.CHANGED
