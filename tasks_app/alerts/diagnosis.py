"""Diagnose groups, workers and tasks: what is wrong, since when, why, and what to do.

The table of groups, the pages of a group, a worker, a task, a job and a batch, and the notices show the sentences.
What they are made of: evidence.py asks the database, causes.py has the tables of causes, links.py what helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from taskstore.types.batches import Batch
from taskstore.types.scalars import LATEST_MS
from taskstore.types.schedules import SCHEDULES
from taskstore.types.tasks import State
from taskstore.units import about, counted, number

from .. import schedules
from ..database import dialect_of
from ..models import BulkOperation, PausedGroup, Task
from ..reading.clients import Holding, Seen, holders_in, holdings
from ..reading.counts import Stats, stats_of
from ..writer.totals import most_ready
from . import links
from .causes import LONG_PAUSE_MS, MINUTE_MS, diagnosis_of, diagnosis_of_batch, diagnosis_of_task
from .evidence import facts_of, facts_of_batch, facts_of_empty, facts_of_task, first_open_groups, unusual_failures
from .kinds import CALM, Diagnosis, Kind, Link

LONG_TRANSACTION_MS = 10 * MINUTE_MS
FEW_WORKERS = 2  # More lost workers than these share one notice.
FEW_GROUPS = 3  # Named in the sentence about a folder.
MOST_GROUPS = 500  # Groups to check: those with the most ready tasks, and as many that workers have named.


# ---- Groups


def of_groups(stats: Mapping[str, Stats], clients: Sequence[Seen]) -> dict[str, Diagnosis]:
    """Diagnose each of these groups.

    `clients`: all with a heartbeat within a day.
    """
    return {name: diagnosis_of(facts) for name, facts in facts_of(stats, clients).items()}


def of_empty(names: Sequence[str]) -> list[Diagnosis]:
    """Diagnose each of these groups, which have no task: they may be paused, or what has failed there is elsewhere."""
    return [diagnosis_of(facts) for facts in facts_of_empty(names)] if names else []


def of_worst(clients: Sequence[Seen]) -> dict[str, Diagnosis]:
    """Diagnose the groups that may be in trouble, and return them with the worst first.

    Checking all groups would take seconds for each view of the page when there are 300 000.
    """
    lost_first = sorted(clients, key=lambda client: not client.is_lost)
    attended = dict.fromkeys(group for client in lost_first for group in client.groups)
    paused = PausedGroup.objects.order_by("at").values_list("group", flat=True)[:MOST_GROUPS]
    failing = [group for group, _ in unusual_failures(Task.objects.now_ms())]
    looked_at = dict.fromkeys([*most_ready(MOST_GROUPS), *list(attended)[:MOST_GROUPS], *paused, *failing])
    found = of_groups(stats_of(list(looked_at)), clients)
    return {each.of.words: each for each in sorted(found.values(), key=lambda each: each.rank)}


def troubled(found: Mapping[str, Diagnosis]) -> dict[str, Diagnosis]:
    """Return the groups that are in trouble."""
    return {name: each for name, each in found.items() if each.kind not in CALM}


def of_folder(prefix: str, names: Sequence[str], troubled: Mapping[str, Diagnosis]) -> Diagnosis:
    """Return the worst diagnosis in a folder, with the names of its groups that have it."""
    found = sorted((troubled[name] for name in names if name in troubled), key=lambda each: each.rank)
    worst = [each for each in found if each.kind is found[0].kind]
    named = ", ".join(each.of.words for each in worst[:FEW_GROUPS])
    more = f" and {number(len(worst) - FEW_GROUPS)} more" if len(worst) > FEW_GROUPS else ""
    return Diagnosis(
        kind=worst[0].kind if worst else Kind.IDLE,
        of=Link(words=prefix, page="overview"),
        word=worst[0].word if worst else "",
        why=f"{number(len(worst))} of {counted(len(names), 'group')}: {named}{more}." if worst else "",
    )


# ---- Workers


def of_workers(clients: Iterable[Seen]) -> list[Diagnosis]:
    """Diagnose the lost workers that hold tasks."""
    silent = [client for client in clients if client.is_lost]
    held = holdings() if silent else {}
    return [of_worker(each, held[each.client.id]) for each in silent if each.client.id in held]


def holders_of(group: str, clients: Iterable[Seen], most: int) -> list[Holder]:
    """Return who leases tasks of a group, the one with most first, each with what ends the leases of a lost one."""
    known = {each.client.id: each for each in clients}
    found = []
    for owner, held in holders_in(group, most):
        worker = known.get(owner)
        is_lost = worker is not None and worker.is_lost
        advice = links.give_back([(worker, held.tasks)], group) if worker and is_lost else None
        found.append(Holder(owner, worker, held, advice))
    return found


class Holder(NamedTuple):
    """Who leases tasks of a group. `worker`: None if it sent no heartbeat within a day."""

    owner: int
    worker: Seen | None
    held: Holding
    advice: Link | None


def together(lost: Sequence[Diagnosis]) -> Diagnosis:
    """Return one sentence about many lost workers."""
    tasks = sum(each.tasks for each in lost)
    return Diagnosis(
        kind=Kind.LOST,
        of=Link(words=counted(len(lost), "worker"), page="workers"),
        why=f"they hold {counted(tasks, 'task')} until the leases end.",
        count=len(lost),
        tasks=tasks,
        is_alarm=True,
    )


def of_worker(lost: Seen, held: Holding) -> Diagnosis:
    """Diagnose a lost worker that holds tasks."""
    return Diagnosis(
        kind=Kind.LOST,
        of=Link(words=str(lost.client), page="workers"),
        since=f"for {about(lost.age_ms)}",
        why=f"it holds {counted(held.tasks, 'task')} until the leases end.",
        advice=links.give_back([(lost, held.tasks)]),
        tasks=held.tasks,
        is_alarm=True,
    )


# ---- Tasks


def of_task(task: Task, now_ms: int, clients: Sequence[Seen], data: bytes) -> Diagnosis | None:
    """Say why a task waits, or that the worker that holds it is lost. Returns None when there is nothing to say.

    `data`: that of the task, or its beginning.
    """
    return diagnosis_of_task(facts_of_task(task, now_ms, clients, data))


# ---- Batches


def of_batch(batch: Batch, clients: Sequence[Seen]) -> tuple[Diagnosis, Mapping[str, Mapping[State, int]]]:
    """Say what a batch waits for, or how it has ended; and return its living members by group and state."""
    facts = facts_of_batch(batch, clients)
    return diagnosis_of_batch(facts), facts.members


def of_open_batches(batch_ids: Sequence[int], clients: Sequence[Seen]) -> dict[int, Diagnosis]:
    """Diagnose the group of the first member of each batch that is still to be done; without batches that have none."""
    firsts = first_open_groups(batch_ids)
    found = of_groups(stats_of(list(dict.fromkeys(firsts.values()))), clients)
    return {batch_id: found[group] for batch_id, group in firsts.items() if group in found}


# ---- Notices


def elsewhere(clients: Sequence[Seen]) -> list[Diagnosis]:
    """Return the diagnoses that no row of a group shows: of workers, schedules, operations, the database and so on."""
    lost = of_workers(clients)
    lost = [together(lost)] if len(lost) > FEW_WORKERS else lost
    found = [*lost, *_broken(), *_running(), *_empty(), *_long_transaction()]
    return sorted(found, key=lambda each: each.rank)


def _empty() -> Iterator[Diagnosis]:
    """Find what is told of groups without a row, because nothing is left there: long pauses, and failures."""
    now_ms = Task.objects.now_ms()
    paused = [each.group for each in PausedGroup.objects.all() if now_ms - each.at_ms > LONG_PAUSE_MS]
    names = list(dict.fromkeys([*paused, *(group for group, _ in unusual_failures(now_ms))]))
    filled = stats_of(names) if names else {}
    yield from of_empty([name for name in names if name not in filled])


def _broken() -> Iterator[Diagnosis]:
    """Find broken schedules, which add nothing until they are repaired."""
    set_aside = Task.objects.get_queryset().in_group(SCHEDULES).with_error().filter(available_at_ms=LATEST_MS)
    for task in set_aside.defer("data")[:MOST_GROUPS]:
        yield Diagnosis(
            kind=Kind.BROKEN,
            of=Link(words=task.labels.get(schedules.NAME_LABEL) or f"task {task.id}", page="schedules"),
            why="it adds nothing until it is repaired.",
            is_alarm=True,
        )


def _long_transaction() -> Iterator[Diagnosis]:
    """Find a transaction that somebody has left open: rows that are deleted meanwhile stay, and slow all down."""
    open_ms, whose = dialect_of(Task.objects.db).oldest_transaction()
    if open_ms > LONG_TRANSACTION_MS:
        yield Diagnosis(
            kind=Kind.BROKEN,
            of=Link(words="Database", page="limits"),
            word="Transaction open",
            since=f"for {about(open_ms)}",
            why=f"{whose}. Until it ends, deleted tasks take up room and claims become slower.",
            is_alarm=True,
        )


def _running() -> Iterator[Diagnosis]:
    for operation in BulkOperation.objects.filter(state=BulkOperation.State.RUNNING):
        words = f"{operation.words.capitalize()} of {operation.in_words}"
        handled = operation.done + operation.skipped + operation.failed
        yield Diagnosis(
            kind=Kind.RUNNING,
            of=Link(words=words, page="operation", args=(operation.pk,)),
            why=f"{number(handled)} of {counted(operation.expected, 'task')} done.",
            tasks=handled,
        )
