"""Bundle new commands into lists, and settle lists that are closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from django.db import transaction

from taskstore.errors import CommitRefused, InvalidInput
from taskstore.types.command_record import (
    LIST_LABEL,
    Command,
    CommandList,
    CommandStatus,
    NotACommand,
    group_of,
    is_late,
    new_command_task,
    new_list_task,
    settled,
)
from taskstore.types.tasks import NOBODY

from ..conf.command_rules import ListRule, rule_of
from ..core.validation import LABEL_LENGTH
from ..database import dialect_of
from ..managers import limits
from ..models import Task
from .changes import PIECE
from .records import available, ids_of, leave_alone, pages_of, tasks_with, understood

MOST_LOOKED_AT = 2_000  # New commands for one round,
MOST_BYTES = 16 * 2**20  # and bytes of them.
LISTS_A_COMMIT = 10
LONGEST_LIST = 2**20  # Bytes of its commands, unless it is one alone: their outputs need room beside them.
WITH_NAMES = (CommandStatus.OPEN, CommandStatus.OPEN_STASHED, CommandStatus.CLOSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A new command and its task."""

    task: int
    since_ms: int  # When it became new.
    size: int  # Bytes.
    command: Command


Batch = Sequence[Waiting]


def make_lists(project: str) -> int:
    """Make open lists of the new commands of the project as its rule says; those that are late fail.

    One round, of a bounded number of commands: call it again while it returns more than 0, the number of lists and
    of late commands. Any number of processes may do it at once.
    """
    try:
        return _make_lists(project, _rule_of(project))
    except CommitRefused:
        return 0  # Somebody else was quicker, and goes on.


def _rule_of(project: str) -> ListRule:
    """With lists so short that one commit can take them and what becomes of them: a result and a duplicate each."""
    rule = rule_of(project)
    return replace(rule, count=max(1, min(rule.count, limits().changes // 3)))


def _make_lists(project: str, rule: ListRule) -> int:
    now_ms = Task.objects.now_ms()
    waiting, is_all = _waiting(project)
    late = [each for each in waiting if is_late(each.command, now_ms // 1_000)]
    for start in range(0, len(late), PIECE):
        _as_far_as_it_goes(project, [late[start : start + PIECE]], _fail)
    in_time = [each for each in waiting if not is_late(each.command, now_ms // 1_000)]
    batches = [*batches_of(in_time, rule)]
    # All but the last one are full. Where there is more to come, it may get fuller the next time.
    if batches and not (is_all and _is_due(batches[-1], rule, now_ms)):
        batches.pop()
    at_once = max(1, min(LISTS_A_COMMIT, limits().changes // (rule.count + 1)))
    for start in range(0, len(batches), at_once):
        _as_far_as_it_goes(project, batches[start : start + at_once], _make)
    return len(late) + len(batches)


def batches_of(waiting: Sequence[Waiting], rule: ListRule) -> Iterator[Batch]:
    """What would lie in a list together, in order. All but the last batch are as full as the rule lets them be."""
    batch: list[Waiting] = []
    duration = size = 0
    for each in waiting:
        duration, size = duration + each.command.expected_duration, size + each.size
        if batch and (len(batch) == rule.count or duration > rule.duration_s or size > LONGEST_LIST):
            yield batch
            batch, duration, size = [], each.command.expected_duration, each.size
        batch.append(each)
    if batch:
        yield batch


def _is_due(batch: Batch, rule: ListRule, now_ms: int) -> bool:
    duration = sum(each.command.expected_duration for each in batch)
    is_old = now_ms - min(each.since_ms for each in batch) >= rule.age_ms
    return is_old or len(batch) >= rule.count or duration >= rule.duration_s


def _waiting(project: str) -> tuple[list[Waiting], bool]:
    """The first new commands, and whether they are all."""
    found: list[Waiting] = []
    size = 0
    for ids in pages_of(available(group_of(project, CommandStatus.NEW))):
        if len(found) >= MOST_LOOKED_AT or size >= MOST_BYTES:
            return found, False
        for task in tasks_with(ids):
            if command := understood(task, named_rightly):
                size += len(task.data)
                found.append(Waiting(task=task.id, since_ms=task.made_at_ms, size=len(task.data), command=command))
    return found, True


def named_rightly(data: bytes) -> Command:
    """Raises NotACommand also for an id that its labels could not hold."""
    command = Command.decode(data)
    if len(command.first_id) > LABEL_LENGTH or "\0" in command.id:
        raise NotACommand(f"the id of a command must have at most {LABEL_LENGTH} characters, without NUL")
    return command


def _as_far_as_it_goes(project: str, batches: Sequence[Batch], change: Callable[[str, Sequence[Batch]], None]) -> None:
    """What no commit can take is told of and left alone: all others of the project would wait for it."""
    try:
        change(project, batches)
    except InvalidInput as problem:
        if len(batches) == len(batches[0]) == 1:
            leave_alone(batches[0][0].task, group_of(project, CommandStatus.NEW), problem)
            return
        for half in _halves(batches):
            _as_far_as_it_goes(project, half, change)


def _halves(batches: Sequence[Batch]) -> Sequence[Sequence[Batch]]:
    if len(batches) > 1:
        middle = len(batches) // 2
        return batches[:middle], batches[middle:]
    [batch] = batches
    middle = len(batch) // 2
    return [batch[:middle]], [batch[middle:]]


def _fail(project: str, batches: Sequence[Batch]) -> None:
    late = [each for batch in batches for each in batch]
    failed = [new_command_task(project, each.command, CommandStatus.FAILED_TIME) for each in late]
    Task.objects.commit(owner=NOBODY, adds=failed, deletes=[each.task for each in late])


@transaction.atomic
def _make(project: str, batches: Sequence[Batch]) -> None:
    """One commit for all of them."""
    lock_names(project)
    names = Names(_names(project))
    made = [CommandList(name=_name(batch, names), commands=tuple(each.command for each in batch)) for batch in batches]
    lists = [new_list_task(project, each) for each in made]
    Task.objects.commit(owner=NOBODY, adds=lists, deletes=[each.task for batch in batches for each in batch])


class Names:
    """Of the lists of a project: each is given once."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._beyond: dict[int, int] = {}  # Where to look on. Thousands of lists of one second would take minutes else.

    def take(self, name: str) -> str:
        """The name, or the next second that no list is named for."""
        passed, free = list[int](), name
        while free in self._taken:
            passed.append(int(free))
            free = str(self._beyond.get(passed[-1], passed[-1] + 1))
        self._taken.add(free)
        self._beyond.update(dict.fromkeys(passed, int(free) + 1))
        return free


def _name(batch: Batch, names: Names) -> str:
    """When the oldest of the commands was created, if that is free."""
    return names.take(str(min(each.command.created for each in batch)))


def _names(project: str) -> set[str]:
    """Of the lists that are there."""
    groups = [group_of(project, status) for status in WITH_NAMES]
    labels = Task.objects.get_queryset().filter(group__in=groups).values_list("labels", flat=True)
    return {each[LIST_LABEL] for each in labels if LIST_LABEL in each}


def lock_names(project: str) -> None:
    """Nobody else names a list of the project until the caller's transaction ends: each name is given once."""
    dialect = dialect_of(Task.objects.writing_alias)
    number = int.from_bytes(sha256(f"command lists {project}".encode()).digest()[:8], signed=True)
    dialect.send(dialect.lock(number))


MOST_AT_ONCE = 100  # Lists of one round.


def process_closed(project: str, *, limit: int = MOST_AT_ONCE) -> int:
    """Settle what became of the commands of up to `limit` closed lists, each list in one commit.

    Returns how many lists were settled. Any number of processes may do it at once.
    """
    ids = ids_of(available(group_of(project, CommandStatus.CLOSED)), limit)
    # One by one: each may hold as many bytes as a task can.
    return sum(_process(project, task_id) for task_id in ids)


def _process(project: str, task_id: int) -> bool:
    [task] = Task.objects.find([task_id])
    closed = understood(task, CommandList.decode) if task else None
    if task is None or closed is None:
        return False
    now = Task.objects.now_ms() // 1_000
    fates = [new_command_task(project, command, status) for status, command in settled(closed, now)]
    try:
        Task.objects.commit(owner=NOBODY, adds=fates, deletes=[task_id])
    except CommitRefused:
        return False  # Somebody else was quicker.
    except InvalidInput as problem:  # Made by hand, with what no task can have.
        leave_alone(task.id, task.group, problem)
        return False
    return True
