"""Limits of groups: how many tasks may be leased at once, and how many be claimed within a time. Pure.

Source: contract.md section 9.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from taskstore.types.scalars import is_in_group
from taskstore.types.tasks import Change, Ending

from .operations import Commit, Effect, Operation, TaskRecord

NO_LIMIT = 2**31  # More than any limit allows.
SLICES = 500  # So exact is the time of a claim, as a part of the time of its rate. Exceeds no rate: it counts as later.


class GroupLimit(NamedTuple):
    """A limit, as its row keeps it."""

    name: str  # A group; with a star at the end every group that begins so, each for itself.
    running: int | None = None  # How many tasks may be leased at once.
    claims: int | None = None  # How many may be claimed within `per_ms`.
    per_ms: int | None = None
    by: str = ""  # A label: separately for each of its values.

    def value_of(self, labels: Mapping[str, str]) -> str:
        """Return the value of the label `by`: tasks with the same value share the limit."""
        return labels.get(self.by, "") if self.by else ""

    def keeps(self, *, leased: bool) -> bool:
        """Return whether the store keeps a row for a task of the group: to count its lease, or to find it by value."""
        return bool(self.by) or (leased and self.running is not None)

    @property
    def rows(self) -> tuple[str, bool]:
        """Return what the rows of a group depend on."""
        return self.by, self.keeps(leased=True)

    def slice_of(self, now_ms: int) -> int:
        """Return the time at which a claim is recorded, rounded up."""
        width_ms = max(1, (self.per_ms or 0) // SLICES)
        return -(-now_ms // width_ms) * width_ms


class Limits:
    """All limits of the store. If several apply to a group, the one with the longest name counts.

    `changing`: the names of limits whose rows are still being written, with whether claims need them.
    """

    def __init__(
        self, version: int = 0, limits: Iterable[GroupLimit] = (), changing: Mapping[str, int] | None = None
    ) -> None:
        self.version = version
        self._changing = changing or {}
        self._limits = sorted(limits, key=lambda limit: (-len(limit.name), limit.name))
        self._found: dict[str, GroupLimit | None] = {}

    def __bool__(self) -> bool:
        return bool(self._limits or self._changing)

    @property
    def names(self) -> Sequence[str]:
        """Return the names of groups, some with a star, to which a limit applies or has applied."""
        return [*(limit.name for limit in self._limits), *self._changing]

    def of(self, group: str) -> GroupLimit | None:
        """Return the limit of the group; None if it has none."""
        if not self:
            return None
        if group not in self._found:
            if len(self._found) > 10_000:
                self._found.clear()
            exact = [limit for limit in self._limits if limit.name == group]
            others = [] if exact else [limit for limit in self._limits if is_in_group(limit.name, group)]
            # As long as there may be rows of a former limit they go with their tasks.
            former = [GroupLimit(group) for name in self._changing if is_in_group(name, group)]
            self._found[group] = next(iter([*exact, *others, *former]), None)
        return self._found[group]

    def are_held(self, group: str) -> bool:
        """Return whether claims of the group are put off: its limit needs rows that are still being written."""
        held = any(holds and is_in_group(name, group) for name, holds in self._changing.items())
        return held and (limit := self.of(group)) is not None and limit.keeps(leased=True)


class Claims(NamedTuple):
    """Claims of a value that were made at the same time, as their row keeps them."""

    id: int
    value: str
    at_ms: int
    claims: int
    again_ms: int  # When they were found to be of a time in the future; 0: never.


@dataclass(slots=True)
class Allowance:
    """The use of a group's limit. `recent`: the times of recent claims with their numbers, by value of the label."""

    group: str
    limit: GroupLimit
    now_ms: int
    leased: Counter[str] = field(default_factory=Counter)  # By value.
    recent: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    known: set[str] = field(default_factory=set)  # The values of which the use is known.
    claimed: Counter[str] = field(default_factory=Counter)  # By value, in this transaction.
    old: dict[str, list[Claims]] = field(default_factory=lambda: defaultdict(list))  # That are not recent, by value.
    ahead: list[int] = field(default_factory=list)  # The rows of `recent` that are found there for the first time.

    def learn(self, leased: Mapping[str, int], made: Iterable[Claims]) -> None:
        """Note the use of more values.

        A claim that is ahead by more than the time of the rate, because the clock was, counts as one of the time at
        which it was found there first, and again when the clock comes near.
        """
        self.leased.update(leased)
        for value in leased:
            self.recent.pop(value, None)
            self.old.pop(value, None)
        self.known |= leased.keys()
        latest_ms = self.limit.slice_of(self.now_ms)
        for each in made if self.limit.per_ms is not None else ():
            at_ms, is_ahead = each.at_ms, each.at_ms >= self.ahead_ms
            if is_ahead and 0 < each.again_ms <= latest_ms:
                at_ms = each.again_ms
            elif is_ahead:
                self.ahead.append(each.id)
                at_ms = latest_ms
            if at_ms > self.now_ms - (self.limit.per_ms or 0):
                self.recent[each.value].append((at_ms, each.claims))
            elif not is_ahead:
                self.old[each.value].append(each)

    @property
    def ahead_ms(self) -> int:
        """From when on claims are of a time that has not come."""
        return self.limit.slice_of(self.now_ms) + (self.limit.per_ms or 0)

    def forgotten(self, value: str) -> list[int]:
        """Return the rows of claims of a value that matter no more.

        As many as the rate allows stay, however old they are: the clock may have been set forward, and go back.
        """
        left = (self.limit.claims or 0) - sum(count for _, count in self.recent.get(value, ())) - self.claimed[value]
        rows = []
        for each in sorted(self.old.get(value, ()), reverse=True):
            if left <= 0:
                rows.append(each.id)
            left -= each.claims
        return rows

    def slots(self, value: str) -> int:
        """Return how many more tasks of the value may be leased."""
        return NO_LIMIT if self.limit.running is None else max(0, self.limit.running - self.leased[value])

    def claims(self, value: str) -> int:
        """Return how many more tasks of the value may be claimed now."""
        if self.limit.claims is None:
            return NO_LIMIT
        made = sum(count for _, count in self.recent.get(value, ())) + self.claimed[value]
        return max(0, self.limit.claims - made)

    def room(self, value: str) -> int:
        """Return how many more unleased tasks of the value may be claimed now."""
        return min(self.slots(value), self.claims(value))

    def next_in_ms(self, value: str) -> int | None:
        """Return in how many milliseconds the rate allows another claim; None if it does now or there is no rate."""
        if self.limit.claims is None or self.limit.per_ms is None or self.claims(value):
            return None
        made = list(self.recent.get(value, ()))
        if self.claimed[value]:
            made.append((self.limit.slice_of(self.now_ms), self.claimed[value]))
        excess = sum(count for _, count in made) - self.limit.claims
        for at_ms, count in sorted(made):
            excess -= count
            if excess < 0:
                return max(1, at_ms + self.limit.per_ms - self.now_ms)
        return self.limit.per_ms

    def soonest_ms(self) -> int | None:
        """Return in how many milliseconds the rate allows another claim of some value; None if it holds back none."""
        times = [self.next_in_ms(value) for value in {*self.recent, *self.claimed}]
        return min([in_ms for in_ms in times if in_ms is not None], default=None)

    def why(self, value: str) -> str:
        """Return why no unleased task of the value is claimed now; empty if the limit allows it."""
        reasons = []
        if not self.slots(value):
            reasons.append(f"{self.leased[value]} of {self.limit.running} running")
        if in_ms := self.next_in_ms(value):
            reasons.append(f"rate: next in {in_ms} ms" if in_ms < 1_000 else f"rate: next in {-(-in_ms // 1_000)} s")
        return ", ".join(reasons)

    def would_take(self, task: TaskRecord) -> bool:
        """Return whether the task, of a known value, may be claimed. An expired one keeps its slot."""
        value = self.limit.value_of(task.labels)
        return self.claims(value) > 0 and (task.leased or self.slots(value) > 0)

    def takes(self, task: TaskRecord) -> bool:
        """Count a claim of the task if the limit allows it. Returns whether it does."""
        if not self.would_take(task):
            return False
        value = self.limit.value_of(task.labels)
        self.claimed[value] += 1
        self.leased[value] += not task.leased
        return True

    def returns(self, task: TaskRecord) -> None:
        """Take back a claim of the task."""
        value = self.limit.value_of(task.labels)
        self.claimed[value] -= 1
        self.leased[value] -= not task.leased

    def follow(self, effect: Effect) -> None:
        """Count the leases that a commit begins and ends. Claims were counted by `takes`."""
        if effect.removals and effect.removals[0].ending is Ending.CLAIMED:
            return
        for removal in effect.removals:
            self._count(removal.task, -1)
        for draft in effect.drafts:
            self._count(draft, 1)

    def _count(self, task: TaskRecord, more: int) -> None:
        if task.leased and task.group == self.group:
            self.leased[self.limit.value_of(task.labels)] += more


def leases(change: Change, task: TaskRecord) -> bool:
    """Return whether an update to a future time leases an unleased task."""
    return bool(change.timespec_ms) and not change.release and not task.leased


def values_to_lease(
    operations: Iterable[Operation], named: Mapping[int, TaskRecord], limits: Limits
) -> dict[str, set[str]]:
    """Return the groups with limits in which commits lease unleased tasks, with the values of these tasks."""
    changes = [change for operation in operations if isinstance(operation, Commit) for change in operation.updates]
    found = dict[str, set[str]]()
    for change in changes:
        if (task := named.get(change.id)) and leases(change, task):
            group = task.group if change.group is None else change.group
            if limit := limits.of(group):
                value = limit.value_of(task.labels if change.labels is None else change.labels)
                found.setdefault(group, set()).add(value)
    return found
