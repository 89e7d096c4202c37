"""The changes that operations make to the counts of their groups: pure, no database, no Django."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from taskstore.types.tasks import Ending, Standing

from .operations import Effect, Removal, TaskRecord

# The same error again is a new failure when a worker brings it, not when a task is moved or claimed.
REPORTS = (Ending.CHANGED, Ending.GIVEN_BACK)

# What a group holds, then what happened in it.
COUNTS = ("tasks", "leases", "errors", "finished", "retrying", "failed")
NUMBERS = (*COUNTS, "entered", "left", "failures", "claimed")
HISTOGRAMS = ("waits", "runs")
COUNTERS = (*HISTOGRAMS, "done")

Counts = defaultdict[int, int]  # Made in a tenth of the time that a Counter takes.
_counts = partial(defaultdict[int, int], int)


@dataclass(slots=True)
class Delta:
    """By how much a batch changes the numbers of a group, and what it did there."""

    tasks: int = 0
    leases: int = 0  # Tasks that are leased, whether or not the lease runs.
    errors: int = 0  # Tasks that have an error.
    finished: int = 0  # Of those that are not leased, these are what their Standing says.
    retrying: int = 0
    failed: int = 0
    entered: int = 0  # Tasks that were added to the group, or moved into it.
    left: int = 0
    failures: int = 0  # Tasks of the group that received an error, wherever they are since.
    claimed: int = 0
    taken_over: int = 0  # Of what was claimed: tasks whose lease had run out.
    waits: Counts = field(default_factory=_counts)  # How long what was claimed had been available, by bucket.
    runs: Counts = field(default_factory=_counts)  # How long what its holder was done with had been leased.
    done: Counts = field(default_factory=_counts)  # What its holder was done with, by holder; given back is not done.

    def __bool__(self) -> bool:
        # Runs may end in a batch whose numbers cancel each other; waits are claims, and those add up.
        return any(self.numbers) or bool(self.runs)

    @property
    def numbers(self) -> tuple[int, ...]:
        """In the order of NUMBERS."""
        return (
            self.tasks,
            self.leases,
            self.errors,
            self.finished,
            self.retrying,
            self.failed,
            self.entered,
            self.left,
            self.failures,
            self.claimed,
        )

    def stand(self, standing: int, more: int) -> None:
        """Count so many more tasks that are not leased."""
        match standing:
            case Standing.FINISHED:
                self.finished += more
            case Standing.RETRYING:
                self.retrying += more
            case Standing.FAILED:
                self.failed += more

    @property
    def counters(self) -> tuple[Counts, ...]:
        """In the order of COUNTERS."""
        return (self.waits, self.runs, self.done)


class Work(NamedTuple):
    """The effect of a batch, over all groups."""

    commits: int = 0
    claimed: int = 0
    taken_over: int = 0
    done: int = 0
    entered: int = 0
    left: int = 0
    failures: int = 0


NOTHING = Work()


def work_in(deltas: Iterable[Delta], commits: int) -> Work:
    """The sum of the deltas of a batch with so many commits."""
    claimed = taken_over = done = entered = left = failures = 0
    for delta in deltas:
        claimed += delta.claimed
        taken_over += delta.taken_over
        done += sum(delta.done.values())
        entered += delta.entered
        left += delta.left
        failures += delta.failures
    return Work(commits, claimed, taken_over, done, entered, left, failures)


def deltas_of(effects: Iterable[Effect], now_ms: int) -> dict[str, Delta]:
    """By how much the effects of a batch change the numbers, by group; groups that stay as they are are not in it."""
    deltas: dict[str, Delta] = {}
    for effect in effects:
        removals, drafts = effect.removals, effect.drafts
        if removals and removals[0].ending is Ending.CLAIMED:
            _claim(removals, drafts, deltas, now_ms)
            continue
        if len(removals) == 1 and not drafts:
            _remove(removals[0], effect, _of(removals[0].task.group, deltas), now_ms)
            continue
        predecessors: dict[int, Removal] = {}
        for removal in effect.removals:
            _remove(removal, effect, _of(removal.task.group, deltas), now_ms)
            if removal.successor is not None:
                predecessors[removal.successor] = removal
        for place, draft in enumerate(effect.drafts):
            predecessor = predecessors.get(place)
            _insert(draft, predecessor, _of(draft.group, deltas))
            if _is_failure(draft, predecessor, effect):
                # A dead letter has failed where it came from.
                _of(predecessor.task.group if predecessor else draft.group, deltas).failures += 1
    return {group: delta for group, delta in deltas.items() if delta}


def _of(group: str, deltas: dict[str, Delta]) -> Delta:
    # Not setdefault: it would make a new one each time.
    delta = deltas.get(group)
    if delta is None:
        delta = deltas[group] = Delta()
    return delta


def _claim(removals: Iterable[Removal], drafts: Iterable[TaskRecord], deltas: dict[str, Delta], now_ms: int) -> None:
    """Count what a claim did. Each draft takes the place of a task in its group: only the leases become more."""
    group, delta = None, Delta()
    for (task, _, _), draft in zip(removals, drafts, strict=True):
        if task.group != group:
            group = task.group
            delta = _of(group, deltas)
        was_leased = task.leased_since_ms > 0
        delta.claimed += 1
        delta.taken_over += was_leased
        delta.leases += (draft.leased_since_ms > 0) - was_leased
        if task.standing and not was_leased:
            delta.stand(task.standing, -1)
        delta.waits[bucket_of(now_ms - task.available_at_ms)] += 1


def _remove(removal: Removal, effect: Effect, delta: Delta, now_ms: int) -> None:
    task, ending, place = removal
    successor = None if place is None else effect.drafts[place]
    delta.tasks -= 1
    delta.leases -= task.leased
    delta.errors -= bool(task.error)
    if task.standing and not task.leased:
        delta.stand(task.standing, -1)
    delta.left += successor is None or successor.group != task.group
    if task.leased and _is_end_of_run(task, successor, effect):
        delta.runs[bucket_of(now_ms - task.leased_since_ms)] += 1
        if ending is not Ending.GIVEN_BACK:
            delta.done[task.owner] += 1


def _is_end_of_run(task: TaskRecord, successor: TaskRecord | None, effect: Effect) -> bool:
    """Whether the holder of a lease ended it by a commit: deleted the task, changed it, moved it, gave it back.

    Whatever leaves it leased is a renewal, also with new data: workers send all of a task to keep it.
    Others end a lease too, by a claim or a commit once it ran out, operators at any time: that tells
    when a worker was given up, not how long its work takes. Who comes late, but before any of them, counts.
    """
    is_holder = effect.owner == task.owner and effect.operator is None
    return is_holder and (successor is None or not successor.leased)


def _insert(draft: TaskRecord, predecessor: Removal | None, delta: Delta) -> None:
    delta.tasks += 1
    delta.leases += draft.leased
    delta.errors += bool(draft.error)
    if draft.standing and not draft.leased:
        delta.stand(draft.standing, 1)
    delta.entered += predecessor is None or predecessor.task.group != draft.group


def _is_failure(draft: TaskRecord, predecessor: Removal | None, effect: Effect) -> bool:
    # What somebody writes over many tasks, or brings back, has not just failed; nor has what was cancelled.
    if not draft.error or draft.standing == Standing.FINISHED or (effect.operator and effect.operator.bulk):
        return False
    return predecessor is None or _is_new_failure(draft, predecessor)


def _is_new_failure(draft: TaskRecord, predecessor: Removal) -> bool:
    task = predecessor.task
    return draft.error != task.error or (task.leased and predecessor.ending in REPORTS)


# ---- Counters as text


def text_of(counter: Mapping[int, int]) -> str:
    """How many times which number was counted: `8:2 11:1`."""
    # A list is made quicker than a generator is asked; three texts are written for each group of a batch.
    return " ".join([f"{number}:{count}" for number, count in sorted(counter.items())])


def counter_in(text: str) -> Counter[int]:
    """What one text, or several with spaces between them, say."""
    counter = Counter[int]()
    # Alike words are counted first: there are thousands of them, and few that differ.
    for word, times in Counter(text.split()).items():
        number, _, count = word.partition(":")
        counter[int(number)] += int(count) * times
    return counter


class Histogram:
    """How often which number was counted. Adds up many by keeping their texts, which are read when it is written."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    @classmethod
    def added_up(cls, histograms: Iterable[Histogram]) -> Histogram:
        return cls(*[text for histogram in histograms for text in histogram._texts])

    def __str__(self) -> str:
        return text_of(self.counter)

    @property
    def counter(self) -> Counter[int]:
        return counter_in(" ".join(self._texts))


# ---- Times, in buckets that grow with them


def bucket_of(ms: int) -> int:
    """The number of the bucket for a time: two buckets to each power of two."""
    if ms < 2:
        return max(ms, 0)
    bits = ms.bit_length()
    return 2 * bits - 2 + (ms >> (bits - 2) & 1)


def least_of(bucket: int) -> int:
    """The shortest time in milliseconds that belongs into a bucket."""
    if bucket < 2:
        return bucket
    return (2 + bucket % 2) << (bucket // 2 - 1)
