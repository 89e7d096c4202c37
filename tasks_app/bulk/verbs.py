"""What each verb does to a task: a change, its end, or why it is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

from taskstore.errors import refuse
from taskstore.types.bulk import OperationVerb
from taskstore.types.job_record import group_to_wait_in
from taskstore.types.tasks import ATTEMPTS, Change, Ending, Problem, State, holds_results

from ..core.validation import LATEST_MS, MOST_PRIORITY, Limits, group_name, text
from ..models import Task

Verb = OperationVerb

MOST_SPREAD_MINUTES = 30 * 24 * 60
MINUTE_MS = 60_000

CLAIMED_BY_A_WORKER = "claimed by a worker"
READY_ALREADY = "ready already"
RETRIED_ELSEWHERE = "a command that has ended: retry it in its project"
THERE_ALREADY = "in that group already"
CHANGED_MEANWHILE = "changed meanwhile"


class Skip(NamedTuple):
    """Why a task is left alone."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """How a verb is to be done."""

    to: str = ""  # Move: the group.
    create: bool = False  # Move: whether that group may be a new one.
    error: str | None = None  # Edit: the new error text, empty for none. None: it stays.
    priority: int | None = None  # Edit. None: it stays.
    at_ms: int = 0  # Requeue: from when on they are available. 0: now.
    spread_minutes: int = 0  # Requeue: over how long, evenly. 0: all at once.
    here: bool = False  # Requeue: dead letters stay in their group, too.
    takes_claimed: bool = False  # Also tasks that workers hold, whose leases end by that.

    @classmethod
    def read(cls, kept: dict[str, Any]) -> Self:
        """From what `as_json` gave."""
        return cls(**kept)

    @property
    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """A verb at work on the tasks of an operation."""

    verb: Verb
    parameters: Parameters
    began_at_ms: int
    expected: int

    @property
    def ending(self) -> Ending:
        """What the trail says became of the tasks."""
        return ENDINGS.get(self.verb, Ending.CHANGED)

    def step(self, task: Task, now_ms: int, before: int) -> Change | int | Skip:
        """What to do to the task, of which so many of the operation came before: a change, its id to delete it,
        or why it is left alone.
        """
        state = task.state(now_ms)
        if state is State.CLAIMED and not self.parameters.takes_claimed:
            return Skip(CLAIMED_BY_A_WORKER)
        return STEPS[self.verb](self, task, state, before)

    @property
    def is_for_later(self) -> bool:
        return bool(self.parameters.at_ms or self.parameters.spread_minutes)

    def turn_of(self, before: int) -> int:
        """From when on a requeued task is available of which so many came before; 0: now."""
        if not self.is_for_later:
            return 0
        spread_ms = self.parameters.spread_minutes * MINUTE_MS * before // max(self.expected, 1)
        return min((self.parameters.at_ms or self.began_at_ms) + spread_ms, LATEST_MS)


def target_of(group: str, failed_from: str = "", *, here: bool = False) -> str | None:
    """The group that a requeued task of this one goes to: a dead letter to where it failed, unless it is to stay here.

    None: it is a command that has ended, which the verbs of its project submit again.
    """
    # A job that has failed lies where no worker looks.
    if queue := group_to_wait_in(group):
        return queue
    if holds_results(group):
        return None
    return failed_from if failed_from and not here else group


def requeued(task: Task, *, here: bool = False, at_ms: int = 0) -> Change | Skip:
    """A change that makes the task available as if nothing had gone wrong."""
    group = target_of(task.group, task.failed_from, here=here)
    if group is None:
        return Skip(RETRIED_ELSEWHERE)
    labels = {name: value for name, value in task.labels.items() if name != ATTEMPTS} if task.failed_from else None
    return Change(id=task.id, group=group, timespec_ms=at_ms, error="", labels=labels, failed_from="", release=True)


def _requeued(doing: Doing, task: Task, state: State, before: int) -> Change | Skip:
    here = doing.parameters.here
    is_as_it_should_be = state is State.READY and not task.is_failed and (here or not task.failed_from)
    if is_as_it_should_be and not doing.is_for_later:
        return Skip(READY_ALREADY)
    return requeued(task, here=here, at_ms=doing.turn_of(before))


def _moved(doing: Doing, task: Task, state: State, before: int) -> Change | Skip:
    to = doing.parameters.to
    return Skip(THERE_ALREADY) if task.group == to else _kept_but(task, state, group=to)


def _edited(doing: Doing, task: Task, state: State, before: int) -> Change:
    return _kept_but(task, state, priority=doing.parameters.priority, error=doing.parameters.error)


def _purged(doing: Doing, task: Task, state: State, before: int) -> int:
    return task.id


def _kept_but(task: Task, state: State, **changed: Any) -> Change:
    """All stays but what is named, and a lease that runs: the task is available at once then."""
    at_ms = 0 if state is State.CLAIMED else max(task.available_at_ms, 1)
    return Change(id=task.id, timespec_ms=at_ms, release=True, **changed)


STEPS: dict[Verb, Callable[[Doing, Task, State, int], Change | int | Skip]] = {
    Verb.REQUEUE: _requeued,
    Verb.MOVE: _moved,
    Verb.EDIT: _edited,
    Verb.PURGE: _purged,
}
ENDINGS = {Verb.REQUEUE: Ending.REQUEUED, Verb.MOVE: Ending.MOVED, Verb.PURGE: Ending.PURGED}


def check(verb: Verb, asked: Parameters, group: str) -> None:
    """Raise InvalidInput that names what the verb can't be done with to tasks of the group (empty: of several)."""
    refuse(list(CHECKS.get(verb, _nothing)(asked, group)))


def _nothing(asked: Parameters, group: str) -> list[Problem]:
    return []


def _requeue_problems(asked: Parameters, group: str) -> list[Problem]:
    problems = []
    if not 0 <= asked.at_ms <= LATEST_MS:
        problems.append(("at", f"milliseconds since 1970, from 0 to {LATEST_MS}; 0: now"))
    if not 0 <= asked.spread_minutes <= MOST_SPREAD_MINUTES:
        problems.append(("spread_minutes", f"a whole number from 0 to {MOST_SPREAD_MINUTES}; 0: all at once"))
    return problems


def _move_problems(asked: Parameters, group: str) -> list[Problem]:
    problems = list(group_name("to", asked.to))
    if problems:
        return problems
    if asked.to == group:
        return [("to", "a group other than the one that the tasks are in")]
    if not asked.create and not Task.objects.get_queryset().in_group(asked.to).exists():
        return [("to", f"no group {asked.to} exists: say that it is to be created, or name another one")]
    return []


def _edit_problems(asked: Parameters, group: str) -> list[Problem]:
    if asked.error is None and asked.priority is None:
        return [("error", "an error text, empty for none, or a priority: there is nothing to change else")]
    problems = list(text("error", asked.error or "", Limits().error_length))
    if not -MOST_PRIORITY <= (asked.priority or 0) <= MOST_PRIORITY:
        problems.append(("priority", f"a whole number from {-MOST_PRIORITY} to {MOST_PRIORITY}"))
    return problems


CHECKS: dict[Verb, Callable[[Parameters, str], list[Problem]]] = {
    Verb.REQUEUE: _requeue_problems,
    Verb.MOVE: _move_problems,
    Verb.EDIT: _edit_problems,
}
