"""The rules on a table in memory, and what it takes for them to agree with the plain model."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from tasks_app.core import rules
from tasks_app.core.operations import Claim, Duplicate, Effect, HeldKey, Key, Operation, Prohibited, PutOff, TaskRecord
from tasks_app.database.claim_pools import named_keys
from taskstore.types.tasks import Refusal

from .model import Ended, NaiveStore
from .sequences import Step, batches, resolved


class Disagreement(AssertionError):
    """The rules and the model differ: one of them is wrong."""


class TableInMemory:
    """What database/ does around the rules, without a database."""

    def __init__(self) -> None:
        self.tasks: dict[int, TaskRecord] = {}
        self.trail: list[Ended] = []
        self.keys: dict[Key, HeldKey] = {}
        self.last_id = self.last_commit = 0

    def run(self, operations: Sequence[Operation], now_ms: int) -> list[tuple[Operation, list[TaskRecord] | Refusal]]:
        """Do the operations, and then one by one those that were put off. Returns them in this order, with answers."""
        groups = {group for operation in operations if isinstance(operation, Claim) for group in operation.groups}
        candidates = {group: self.candidates(group) for group in groups}
        keys = {key: self.keys[key] for key in named_keys(operations) if key in self.keys}
        origins = {held.origin for held in keys.values() if not held.ended}
        holders = {task.origin: task for task in self.tasks.values() if task.origin in origins}
        world = rules.World(now_ms, dict(self.tasks), candidates, keys=keys, holders=holders)
        done: list[tuple[Operation, list[TaskRecord] | Refusal]] = []
        put_off = []
        for operation, answer in zip(operations, rules.decide(operations, world), strict=True):
            if isinstance(answer, PutOff):
                put_off.append(operation)
            else:
                done.append((operation, self.write(answer, now_ms) if isinstance(answer, Effect) else answer))
        if len(put_off) == len(operations) == 1:
            raise Disagreement(f"{put_off[0]} is put off for ever")
        return done + [pair for operation in put_off for pair in self.run([operation], now_ms)]

    def candidates(self, group: str) -> list[TaskRecord]:
        """All tasks of the group, the best first: what is not available yet, the rules must leave alone."""
        tasks = [task for task in self.tasks.values() if task.group == group]
        return sorted(tasks, key=lambda task: (-task.priority, task.available_at_ms, task.id))

    def write(self, effect: Effect, now_ms: int) -> list[TaskRecord]:
        if not (effect.removals or effect.drafts or effect.places):
            return []
        self.last_commit += 1
        made = [self.insert(draft) for draft in effect.drafts]
        for removal in effect.removals:
            if self.tasks.pop(removal.task.id, None) is None:
                raise Disagreement(f"task {removal.task.id} is removed twice")
            successor = None if removal.successor is None else made[removal.successor].id
            self.trail.append(Ended(id=removal.task.id, ending=removal.ending, successor=successor, by=effect.owner))
            if successor is None:
                self.free_key(removal.task, now_ms)
        for place, held in effect.taken:
            self.keys[held.group, held.key] = held._replace(origin=made[place].origin)
        return effect.answer(made)

    def free_key(self, ended: TaskRecord, now_ms: int) -> None:
        for key, held in list(self.keys.items()):
            if held.origin == ended.origin and not held.ended:
                del self.keys[key]
                if held.until_ms > now_ms:
                    self.keys[key] = held._replace(ended=ended.id, ended_in=ended.group)

    def insert(self, draft: TaskRecord) -> TaskRecord:
        self.last_id += 1
        task = draft._replace(id=self.last_id, origin=draft.origin or self.last_id, made_by_commit=self.last_commit)
        self.tasks[task.id] = task
        return task


def check(sequence: list[Step], seen: Counter[str]) -> None:
    """Compare; where they differ, raise Disagreement with the few steps that it takes."""
    try:
        compare(sequence, seen)
    except Disagreement:
        compare(shortened(sequence), seen)


def compare(sequence: Sequence[Step], seen: Counter[str]) -> None:
    """Run the sequence through the rules and through the model; raise Disagreement where they differ.

    `seen` counts what kinds of answers there were.
    """
    table, model = TableInMemory(), NaiveStore()
    for elapsed_ms, operations in batches(sequence):
        model.now_ms += elapsed_ms
        living = sorted(model.tasks)
        batch = [resolved(operation, living, model.last_id) for operation in operations]
        done = table.run(batch, model.now_ms)
        # The candidates of a claim are read before the batch is decided.
        expected = [model.perform(operation, claimable=living) for operation, _ in done]
        for (operation, answer), right in zip(done, expected, strict=True):
            agree(operation, without_texts(answer), without_texts(right))
            seen.update(kinds(answer))
        agree("the tasks", table.tasks, model.tasks)
    agree("the trail", table.trail, model.trail)
    seen.update(ended.ending.value for ended in model.trail)


def shortened(sequence: list[Step]) -> list[Step]:
    """A sequence on which the rules still fail, without the steps that this does not need.

    hypothesis would take minutes for it: each of its steps is a dozen draws.
    """
    for place in reversed(range(len(sequence))):
        shorter = sequence[:place] + sequence[place + 1 :]
        if fails(shorter):
            sequence = shorter
    return sequence


def fails(sequence: Sequence[Step]) -> bool:
    try:
        compare(sequence, Counter())
    except Disagreement:
        return True
    return False


def agree(what: object, answer: object, right: object) -> None:
    if answer != right:
        raise Disagreement(f"{what}\nrules: {answer}\nmodel: {right}")


def without_texts(answer: list[TaskRecord] | Refusal) -> object:
    """The answer, of its bugs only the number: how they are worded is free."""
    if isinstance(answer, Prohibited):
        return Prohibited(forbidden=("",))
    if isinstance(answer, Refusal):
        return replace(answer, bugs=("",) * len(answer.bugs))
    return answer


def kinds(answer: list[TaskRecord] | Refusal) -> list[str]:
    if isinstance(answer, Prohibited):
        return ["prohibited"]
    if isinstance(answer, Refusal):
        return [name for name in ("changes", "deletes", "depends", "owned", "bugs") if getattr(answer, name)]
    if any(isinstance(task, Duplicate) for task in answer):
        return ["duplicate"]
    return ["done"] if answer else ["nothing to claim"]
