"""Commands that show tasks, groups and workers: groups, stats, ls, show, search, history, workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice

import click
from rich.console import Group, RenderableType
from rich.text import Text

from .. import endpoints
from ..types.groups import ClientStatus, GroupStats, pulse_of
from ..types.history import History, Step
from ..types.tasks import PLAIN, State, Task
from ..units import duration, size
from . import made, parameter_types
from .base import Failure, Scope, Session, as_json, command
from .tables import Column, exact, facts, lasting, number, printable_lines, rate, relative, rough, table, when

PREVIEW = 120  # Characters of the data in a list.
COLUMNS = (
    Column[Task]("id", lambda task: task.id, is_number=True, style="cyan"),
    Column[Task]("available", lambda task: relative(task.available_at_ms)),
    Column[Task]("owner", lambda task: _owner(task), is_number=True),
    Column[Task]("claims", lambda task: task.claims, is_number=True),
    Column[Task]("priority", lambda task: task.priority, is_number=True),
    Column[Task]("labels", lambda task: _pairs(task.labels), is_long=True),
    Column[Task]("error", lambda task: task.error, is_long=True, style="red"),
    Column[Task]("data", lambda task: preview(task.data), is_long=True, is_kept=True),
)
WITH_GROUP = (Column[Task]("group", lambda task: task.group, style="bold", is_long=True), *COLUMNS)


def preview(data: bytes) -> str:
    """Return the beginning of the data, or its size if it is not text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"({size(len(data))}, no text)"
    return text if len(text) <= PREVIEW else f"{text[:PREVIEW]}… ({size(len(data))})"


def whole(task: Task) -> RenderableType:
    """Return the details of a task, then its data."""
    pairs = facts(_facts(task))
    return Group(pairs, "", Text(_readable(task.data))) if task.data else pairs


def _facts(task: Task) -> Iterator[tuple[str, object]]:
    yield "id", task.id
    yield "group", task.group
    yield "available", when(task.available_at_ms)
    yield "owner", _owner(task)
    yield "claims", task.claims
    yield from ((name, getattr(task, name)) for name in PLAIN)
    yield "unique key", task.unique
    yield "labels", _pairs(task.labels)
    yield "error", task.error
    yield "first id", task.origin if task.origin != task.id else ""
    yield "created", when(task.created_at_ms)
    yield "type of data", task.data_type
    yield "data", "" if task.data else "none"


def _owner(task: Task) -> int:
    # Before the first claim the owner is the client that added the task, which holds no lease.
    return task.owner if task.claims else 0


def _pairs(labels: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in labels.items())


def _readable(data: bytes) -> str:
    """Return JSON indented, other text unchanged, and the size of binary data."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"{size(len(data))}, not text: use --json to get it in Base64"
    try:
        tree = json.loads(text)
    except ValueError:
        return printable_lines(text)
    # A single number stays as written: 1.50, 1e400.
    return printable_lines(json.dumps(tree, indent=2, ensure_ascii=False) if isinstance(tree, dict | list) else text)


def held_by(duplicate: Task) -> str:
    """Say which task holds a key."""
    if not duplicate.id:
        return "a task that this token can't see holds the key"
    if duplicate.ending:
        return f"task {duplicate.id} had the key and was {duplicate.ending}; the key is still reserved"
    return f"task {duplicate.id} holds the key"


def added(tasks: Sequence[Task]) -> str:
    """`task 17`, or `3 tasks, 17 to 19`."""
    if len(tasks) == 1:
        return f"task {tasks[0].id}"
    return f"{number(len(tasks))} tasks, {tasks[0].id} to {tasks[-1].id}" if tasks else "no task"


STATES = ("ready", "claimed", "expired", "scheduled", "failed")
COLOURS = ("blue", "green", "yellow", "magenta", "red")
NO_GROUP = "no groups with tasks that you can access"


def _sum_of(state: str, groups: Sequence[GroupStats]) -> str:
    return number(sum(getattr(each, state) for each in groups))


def _oldest(groups: Sequence[GroupStats]) -> str:
    oldest_ms = groups[0].oldest_ready_ms if len(groups) == 1 else None
    return "" if oldest_ms is None else rough(oldest_ms)


def _rates(groups: Sequence[GroupStats]) -> str:
    entered, left = sum(each.in_per_minute for each in groups), sum(each.out_per_minute for each in groups)
    return f"{rate(entered)}, {rate(left)}" if entered or left else ""


def _notes(groups: Sequence[GroupStats]) -> str:
    if len(groups) > 1:
        return ""
    [only] = groups
    beside = {"retrying": only.retrying, "dead": only.dead, "finished": only.finished}
    notes = ["paused"] * only.paused + ([only.limit.why] if only.limit and only.limit.why else [])
    return ", ".join(notes + [f"{number(count)} {what}" for what, count in beside.items() if count])


# Of a group, or of several together.
STATS = (
    Column[Sequence[GroupStats]](
        "group",
        lambda groups: groups[0].group if len(groups) == 1 else "all",
        style="bold",
        is_long=True,
        is_folded=True,
    ),
    *(
        Column[Sequence[GroupStats]](state, partial(_sum_of, state), is_number=True, is_kept=True, style=colour)
        for state, colour in zip(STATES, COLOURS, strict=True)
    ),
    Column[Sequence[GroupStats]]("oldest", _oldest, is_number=True, is_kept=True),  # For how long it has been ready.
    Column[Sequence[GroupStats]]("in, out/min", _rates, is_number=True),
    Column[Sequence[GroupStats]]("", _notes),
)
STEPS = (
    Column[Step]("id", lambda step: step.id, is_number=True, style="cyan"),
    Column[Step]("made", lambda step: exact(step.made_at_ms)),
    Column[Step]("group", lambda step: step.group, style="bold", is_long=True),
    Column[Step]("owner", lambda step: step.claims and step.owner, is_number=True),
    Column[Step]("became", lambda step: _became(step), is_long=True),
    Column[Step]("after", lambda step: step.ended and duration(step.ended.at_ms - step.made_at_ms), is_number=True),
    Column[Step]("by", lambda step: _who(step) + (f": {step.ended.reason}" if step.ended and step.ended.reason else ""),
                 is_long=True),
    Column[Step]("error", lambda step: step.error, is_long=True, style="red"),
)  # fmt: skip
WORKERS = (
    Column[ClientStatus]("worker", lambda worker: worker.name, style="bold"),
    Column[ClientStatus]("client", lambda worker: worker.client_id, is_number=True, style="cyan"),
    Column[ClientStatus]("host", lambda worker: worker.host),
    Column[ClientStatus]("pid", lambda worker: worker.pid, is_number=True),
    Column[ClientStatus]("reported", lambda worker: lasting(worker.age_ms), is_number=True),
    Column[ClientStatus]("pulse", lambda worker: pulse_of(worker.age_ms)),
    Column[ClientStatus]("done/min", lambda worker: rate(worker.done_per_minute or 0), is_number=True),
    Column[ClientStatus]("groups", lambda worker: " ".join(worker.groups), is_long=True),
)

workers = made.lists(
    "workers",
    endpoints.CLIENTS,
    WORKERS,
    nothing="no worker has reported within the last day",
    help="List the workers that reported within the last day, most recent first.",
)


@command("groups", needs=Scope.READ)
def groups(session: Session) -> None:
    """List the names of the non-empty groups."""
    names = session.some(session.store.groups(), NO_GROUP)
    session.tell(names)
    for name in names:
        session.say(name)


@command("stats", needs=Scope.READ)
@parameter_types.groups
def stats(session: Session, groups: Sequence[str]) -> None:
    """Count the tasks of each group, or of GROUPS only; pay/* means all groups whose names begin with pay/."""
    nothing = NO_GROUP
    if groups:
        nothing = f"no tasks in {' or '.join(groups)}: `{session.typed('groups')}` lists groups with tasks"
    found = session.some(session.store.stats(tuple(groups)).groups, nothing)
    if not session.tell(map(as_json, found)):
        session.show(stats_table(found))


def stats_table(found: Sequence[GroupStats]) -> RenderableType:
    """Return a table with a row for each group and one with the totals."""
    return table(STATS, [*([each] for each in found), *([found] if len(found) > 1 else [])])


@command("ls", needs=Scope.READ)
@parameter_types.group
@click.option("--state", type=click.Choice([each.value for each in State]), help="Only tasks in this state.")
@parameter_types.labels
@parameter_types.limit
def ls(session: Session, group: str, state: str | None, labels: Sequence[tuple[str, str]], limit: int) -> None:
    """List the tasks of GROUP, those available longest first."""
    if state:
        terms = [f"group:{quoted(group)}", f"state:{state}"]
        terms += [f"label.{quoted(name)}:{quoted(value)}" for name, value in labels]
        found = search_all(session, " ".join(terms), limit)
    else:
        found = session.store.group(group, limit=limit and limit + 1, owned=True, labels=dict(labels))
    nothing = f"no matching tasks in {group}" if state or labels else f"no tasks in {group}"
    tell_tasks(session, found, limit, nothing, COLUMNS)


@command("search", needs=Scope.READ)
@click.argument("terms", nargs=-1, required=True, metavar="TERM...")
@parameter_types.limit
def search(session: Session, terms: Sequence[str], limit: int) -> None:
    """List the tasks that match every TERM: group:mail state:retrying 'error:"timed out"' -owner:17 age:>1h."""
    tell_tasks(session, search_all(session, " ".join(terms), limit), limit, "no matching tasks", WITH_GROUP)


def search_all(session: Session, query: str, limit: int) -> Iterator[Task]:
    """Yield one more task than is shown, to know whether there are more. `limit`: how many the caller shows; 0: all."""
    return made.all_of(session, endpoints.SEARCH, lambda page: page.tasks, limit=limit and limit + 1, q=query)


def tell_tasks(
    session: Session, found: Iterable[Task], limit: int, nothing: str, columns: Sequence[Column[Task]]
) -> None:
    """Print up to `limit` tasks, and note if there are more. `nothing`: the failure if there are none."""
    rest = iter(found)
    first = session.some(list(islice(rest, 1)), nothing)
    tasks = chain(first, islice(rest, limit - 1 if limit else None))
    if not session.tell(map(as_json, tasks)):
        session.show(table(columns, tasks))
    if limit and next(rest, None):
        session.note(f"limited to {number(limit)}: --limit 0 shows all")


def quoted(value: str) -> str:
    """Quote a value for a search term."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@command("show", needs=Scope.READ)
@click.argument("id", type=parameter_types.ID)
def show(session: Session, id: int) -> None:
    """Show a task by its current id or an earlier one. If it has ended, say how; exit code 1."""
    task = session.store.task(id) or living(session, id)
    if session.tell([as_json(task)]):
        return
    if task.id != id:
        session.note(f"{id} is now {task.id}")
    session.show(whole(task))


def living(session: Session, id: int) -> Task:
    """Return the current task of an id's chain. Raises Failure if the chain has ended."""
    last = history_of(session, id).steps[-1]
    task = session.store.task(last.id) if last.ended is None else None
    if task is None:
        raise Failure(f"task {id} has ended: {how_it_ended(last)}")
    return task


def how_it_ended(step: Step) -> str:
    """Describe the end of an id: `deleted by client 17, 3 min ago`."""
    if step.ended is None:
        return "replaced just now"
    reason = f" ({step.ended.reason})" if step.ended.reason else ""
    return f"{step.ended.how} by {_who(step)}{reason}, {relative(step.ended.at_ms)}"


def _who(step: Step) -> str:
    return (step.ended.operator or f"client {step.ended.client_id}") if step.ended else ""


def _became(step: Step) -> str:
    if step.ended is None:
        return ""
    return f"{step.ended.how}, now {step.ended.successor}" if step.ended.successor else str(step.ended.how)


def history_of(session: Session, id: int) -> History:
    found = session.store.history(id)
    if found is None or not found.steps:
        raise Failure(f"task {id} does not exist, or its history has expired")
    return found


@command("history", needs=Scope.READ)
@click.argument("id", type=parameter_types.ID)
def history(session: Session, id: int) -> None:
    """Show the history of a task, by its current id or an earlier one."""
    found = history_of(session, id)
    if session.tell(map(as_json, found.steps)):
        return
    session.say(f"task {found.origin}, added {when(found.created_at_ms)}")
    session.show(table(STEPS, found.steps))
