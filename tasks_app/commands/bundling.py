"""Bundle new commands into lists, settle closed lists, and delete leftovers; the loop that does it in a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

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
    output_group,
    settled,
)
from taskstore.types.scalars import LABEL_LENGTH
from taskstore.types.tasks import NOBODY

from ..conf.command_rules import ListRule, rule_of
from ..core.portions import by_halves, portions
from ..database import atomic, dialect_of
from ..managers import limits
from ..models import Task
from ..writer.background import BackgroundLoop
from .changes import PIECE, archive_old, by_pieces
from .progress import load_of
from .summaries import available, decoded, ids_of, leave_alone, pages_of, projects, tasks_with

MOST_LOOKED_AT = 2_000  # New commands of one round,
MOST_BYTES = 16 * 2**20  # and their bytes.
LISTS_A_COMMIT = 10
LONGEST_LIST = 2**20  # Bytes of several commands in a list, which leaves room for their outputs.
WITH_NAMES = (CommandStatus.OPEN, CommandStatus.OPEN_STASHED, CommandStatus.CLOSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A new command and its task."""

    task: int
    since_ms: int  # When it became new.
    size: int  # Bytes.
    command: Command
    batch: int  # That it belongs to; a list has commands of one alone.


Bundle = Sequence[Waiting]


def make_lists(project: str) -> int:
    """Make open lists of the project's new commands as its rule says, or when workers are idle; late commands fail.

    This is one round with a limited number of commands: call it again while it returns more than 0, the number of
    lists and late commands. Any number of processes may do it at once.
    """
    try:
        now_ms, rule, open_group = Task.objects.now_ms(), rule_of(project), group_of(project, CommandStatus.OPEN)
        # One commit must be able to settle a list, with a result and a duplicate for each command.
        rule = replace(rule, count=max(1, min(rule.count, limits().changes // 3)))
        waiting, is_all = _waiting(project)
        late = [each for each in waiting if is_late(each.command, now_ms // 1_000)]
        for some in portions(late, PIECE):
            _change_valid(project, [some], _fail)
        batches = [*batches_of([each for each in waiting if not is_late(each.command, now_ms // 1_000)], rule)]
        # All but the last batch are full. The last one may grow while there are more commands.
        if batches and not (is_all and (_is_due(batches[-1], rule, now_ms) or load_of(open_group).free)):
            batches.pop()
        at_once = max(1, min(LISTS_A_COMMIT, limits().changes // (rule.count + 1)))
        for each in portions(batches, at_once):
            _change_valid(project, each, _make)
        return len(late) + len(batches)
    except CommitRefused:
        return 0  # Another process was faster, and continues.


def batches_of(waiting: Sequence[Waiting], rule: ListRule) -> Iterator[Bundle]:
    """Yield the commands of each list, in order. All batches but the last are as full as the rule allows."""
    batch: list[Waiting] = []
    duration = size = 0
    for each in waiting:
        duration, size = duration + each.command.expected_duration, size + each.size
        is_other = bool(batch) and each.batch != batch[0].batch
        if batch and (is_other or len(batch) == rule.count or duration > rule.duration_s or size > LONGEST_LIST):
            yield batch
            batch, duration, size = [], each.command.expected_duration, each.size
        batch.append(each)
    if batch:
        yield batch


def _is_due(batch: Bundle, rule: ListRule, now_ms: int) -> bool:
    duration = sum(each.command.expected_duration for each in batch)
    is_old = now_ms - min(each.since_ms for each in batch) >= rule.age_ms
    return is_old or len(batch) >= rule.count or duration >= rule.duration_s


def _waiting(project: str) -> tuple[list[Waiting], bool]:
    """Return the first new commands, and whether these are all."""
    found: list[Waiting] = []
    size = 0
    for ids in pages_of(available(group_of(project, CommandStatus.NEW))):
        if len(found) >= MOST_LOOKED_AT or size >= MOST_BYTES:
            return found, False
        for task in tasks_with(ids):
            if command := decoded(task, named_rightly):
                size += len(task.data)
                about = {"since_ms": task.made_at_ms, "size": len(task.data), "batch": task.batch}
                found.append(Waiting(task=task.id, command=command, **about))
    return found, True


def named_rightly(data: bytes) -> Command:
    """Decode a command. Raises NotACommand also for an id that does not fit a label."""
    command = Command.decode(data)
    if len(command.first_id) > LABEL_LENGTH or "\0" in command.id:
        raise NotACommand(f"the id of a command must have at most {LABEL_LENGTH} characters, without NUL")
    return command


def _change_valid(project: str, batches: Sequence[Bundle], change: Callable[[str, Sequence[Bundle]], None]) -> None:
    """Change all commands but invalid ones, which are found by halving and skipped: they must not block the others."""

    def alone(batch: Bundle, problem: Exception) -> None:
        if len(batch) > 1:
            _change_valid(project, list(portions(batch, (len(batch) + 1) // 2)), change)
        else:
            leave_alone(batch[0].task, group_of(project, CommandStatus.NEW), problem)

    for _ in by_halves(batches, partial(change, project), alone, lambda error: isinstance(error, InvalidInput)):
        pass


def _fail(project: str, batches: Sequence[Bundle]) -> None:
    late = [each for batch in batches for each in batch]
    failed = [new_command_task(project, each.command, CommandStatus.FAILED_TIME, batch=each.batch) for each in late]
    Task.objects.commit(owner=NOBODY, adds=failed, deletes=[each.task for each in late])


@atomic()
def _make(project: str, batches: Sequence[Bundle]) -> None:
    """Make all lists in one commit. A list is named for the creation of its oldest command."""
    lock_names(project)
    groups = [group_of(project, status) for status in WITH_NAMES]
    labels = Task.objects.get_queryset().filter(group__in=groups).values_list("labels", flat=True)
    names = Names(each[LIST_LABEL] for each in labels if LIST_LABEL in each)
    lists = []
    for batch in batches:
        name = names.take(str(min(each.command.created for each in batch)))
        commands = tuple(each.command for each in batch)
        lists.append(new_list_task(project, CommandList(name=name, commands=commands), batch=batch[0].batch))
    Task.objects.commit(owner=NOBODY, adds=lists, deletes=[each.task for batch in batches for each in batch])


class Names:
    """The unique names of a project's lists."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._beyond: dict[int, int] = {}  # Shortcuts: without them, thousands of lists of one second take minutes.

    def take(self, name: str) -> str:
        """Return the name, or the next second that names no list."""
        passed, free = list[int](), name
        while free in self._taken:
            passed.append(int(free))
            free = str(self._beyond.get(passed[-1], passed[-1] + 1))
        self._taken.add(free)
        self._beyond.update(dict.fromkeys(passed, int(free) + 1))
        return free


def lock_names(project: str) -> None:
    """Keep other processes from naming lists of the project until the caller's transaction ends."""
    dialect = dialect_of(Task.objects.writing_alias)
    number = int.from_bytes(sha256(f"command lists {project}".encode()).digest()[:8], signed=True)
    dialect.send(dialect.lock(number))


MOST_AT_ONCE = 100  # Lists of one round.


def process_closed(project: str, *, limit: int = MOST_AT_ONCE) -> int:
    """Settle the commands of up to `limit` closed lists, each list in one commit.

    Returns how many lists were settled. Any number of processes may do it at once.
    """
    done = 0
    # One by one: each list may be as large as a task can be.
    for task_id in ids_of(available(group_of(project, CommandStatus.CLOSED)), limit):
        [task] = Task.objects.find([task_id])
        closed = decoded(task, CommandList.decode) if task else None
        if task is None or closed is None:
            continue
        now = Task.objects.now_ms() // 1_000
        why = "" if closed.finished else task.error  # No worker has closed it: it was cancelled.
        results = [
            new_command_task(
                project, command, status, why if status is CommandStatus.CANCELLED else "", batch=task.batch
            )
            for status, command in settled(closed, now, is_cancelled=bool(why))
        ]
        try:
            Task.objects.commit(owner=NOBODY, adds=results, deletes=[task_id])
            done += 1
        except CommitRefused:
            pass  # Another process was faster.
        except InvalidInput as problem:  # A list that no worker made.
            leave_alone(task.id, task.group, problem)
    return done


PAUSE_S = 0.5
TIDIED_EVERY_S = 10.0


class ListMaker(BackgroundLoop):
    """Bundles, settles and tidies up in each server process that accepts commands."""

    def __init__(self) -> None:
        self._tidied_s = float("-inf")
        super().__init__("command lists", self._make_and_settle)

    async def _make_and_settle(self) -> float:
        if time.monotonic() > self._tidied_s + TIDIED_EVERY_S:
            self._tidied_s = time.monotonic()
            await self.aside(tidy)
        return 0.0 if await self.aside(look_after) else PAUSE_S


def look_after() -> bool:
    """Settle closed lists and make new ones, some of each project. Returns whether there was anything to do."""
    # In this order: settling may add retries to the new commands.
    done = [process_closed(project) + make_lists(project) for project in projects()]
    return any(done)


def tidy() -> None:
    """Archive commands that were completed long ago, and delete the leftovers of dead workers."""
    for project in projects():
        archive_old(project)
        delete_leftovers(project)


def delete_leftovers(project: str) -> int:
    """Delete live outputs whose list is no longer running, or has another worker now. Returns how many."""
    # The outputs first: the list of an output that is written after this query is running.
    outputs: list[tuple[int, str, int]] = []
    for ids in pages_of(Task.objects.group(output_group(project), owned=True)):
        found = Task.objects.get_queryset().filter(id__in=ids).values_list("id", "labels", "made_at_ms")
        outputs += [(task_id, labels.get(LIST_LABEL, ""), made_at_ms) for task_id, labels, made_at_ms in found]
    tasks = Task.objects.get_queryset().in_group(group_of(project, CommandStatus.OPEN))
    running = tasks.claimed(Task.objects.now_ms()).values_list("origin", "leased_since_ms")
    begun_ms = {str(origin): since_ms for origin, since_ms in running}
    left = [task_id for task_id, origin, made_at_ms in outputs if made_at_ms < begun_ms.get(origin, made_at_ms + 1)]
    return by_pieces([left], _delete)


def _delete(ids: Sequence[int]) -> int:
    Task.objects.commit(owner=NOBODY, deletes=ids)
    return len(ids)
