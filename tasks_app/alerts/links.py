"""The pages that diagnoses point to: what a group, a worker or a task is, and what helps."""

from __future__ import annotations

from collections.abc import Sequence

from taskstore.types.command_record import place_of
from taskstore.types.job_record import LEFT_LABEL, JobStatus, queue_of
from taskstore.types.tasks import State
from taskstore.units import counted

from ..reading.clients import Seen
from ..reading.search.grammar import quoted
from ..writer.totals import Numbers
from .kinds import Link

Held = Sequence[tuple[Seen, int]]  # Lost workers with the number of tasks that they hold.

WORKERS = Link(words="See the workers", page="workers")


def group(name: str) -> Link:
    return Link(words=name, page="group", query={"name": name})


def limit(name: str) -> Link:
    return Link(words="See the limit", page="group_limit", query={"name": name})


def errors(counts: Numbers) -> Link:
    """Return the link to what has failed in a group, wherever that is now."""
    words, name = "See the errors", counts.group
    if counts.failed or counts.retrying:
        state = State.FAILED if counts.failed > counts.retrying else State.RETRYING
        return Link(words=words, page="group", query={"name": name, "state": state})
    if queue := queue_of(name):
        return Link(words=words, page="jobs", query={"queue": queue, "status": JobStatus.FAILED})
    if place := place_of(name):
        return Link(words=words, page="command_project", query={"project": place[0]})
    return Link(words=words, page="search", query={"q": f"failed_from:{quoted(name)}"})


def without_function(name: str) -> Link:
    return Link(words="See the jobs", page="search", query={"q": f"group:{quoted(name)} label:{LEFT_LABEL}"})


def give_back(held: Held, group: str = "") -> Link:
    """Return the link that ends the leases of a lost worker, in one group or in all; that to the workers for many."""
    if len(held) > 1 or group.endswith("*"):
        return WORKERS
    [(worker, tasks)] = held
    which = f"group:{quoted(group)} " if group else ""
    return Link(
        words=f"Give back {counted(tasks, 'lease')}",
        page="confirm",
        is_change=True,
        query={"verb": "give_back", "q": f"{which}owner:{worker.client.id} state:claimed", "all": 1},
    )
