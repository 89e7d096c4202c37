"""Commands that show tasks, groups and workers: groups, stats, ls, show, search, history, workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ..types.groups import ClientStatus, GroupStats, pulse_of
from ..types.history import History, Step
from ..types.scalars import is_in_group
from ..types.tasks import PLAIN, State, Task
from ..units import duration, size
from . import parameter_types
from .base import Failure, Scope, Session, as_json, command, now_ms
from .tables import Column, Fitting, exact, facts, number, printable_lines, rate, relative, rough, table, when

PREVIEW = 120  # Characters of the data in a list.
GROUP = Column(title="group", style="bold", is_long=True)
COLUMNS = (
    Column(title="id", is_number=True, style="cyan"),
    Column(title="available"),
    Column(title="owner", is_number=True),
    Column(title="claims", is_number=True),
    Column(title="priority", is_number=True),
    Column(title="labels", is_long=True),
    Column(title="error", is_long=True, style="red"),
    Column(title="data", is_long=True, is_kept=True),
)


def tasks_table(tasks: Iterable[Task], now_ms: int, *, with_group: bool) -> Fitting:
    """Return a table with a row for each task."""
    if with_group:
        return table((GROUP, *COLUMNS), ([task.group, *_cells(task, now_ms)] for task in tasks))
    return table(COLUMNS, (_cells(task, now_ms) for task in tasks))


def _cells(task: Task, now_ms: int) -> Sequence[str]:
    return (
        str(task.id),
        relative(task.available_at_ms, now_ms),
        _owner(task),
        str(task.claims or ""),
        str(task.priority or ""),
        " ".join(_pairs(task.labels)),
        task.error,
        preview(task.data),
    )


def preview(data: bytes) -> str:
    """Return the beginning of the data, or its size if it is not text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"({size(len(data))}, no text)"
    return text if len(text) <= PREVIEW else f"{text[:PREVIEW]}… ({size(len(data))})"


def whole(task: Task, now_ms: int) -> RenderableType:
    """Return the details of a task, then its data."""
    pairs = facts((name, what) for name, what in _facts(task, now_ms) if what)
    return Group(pairs, "", Text(_readable(task.data))) if task.data else pairs


def _facts(task: Task, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "id", str(task.id)
    yield "group", task.group
    yield "available", when(task.available_at_ms, now_ms)
    yield "owner", _owner(task)
    yield "claims", str(task.claims or "")
    yield from ((name, str(getattr(task, name) or "")) for name in PLAIN)
    yield "unique key", task.unique
    yield "labels", " ".join(_pairs(task.labels))
    yield "error", task.error
    yield "first id", str(task.origin) if task.origin != task.id else ""
    yield "created", when(task.created_at_ms, now_ms)
    yield "type of data", task.data_type
    yield "data", "" if task.data else "none"


def _owner(task: Task) -> str:
    # Before the first claim the owner is the client that added the task, which holds no lease.
    return str(task.owner) if task.claims and task.owner else ""


def _pairs(labels: Mapping[str, str]) -> Iterator[str]:
    return (f"{name}={value}" for name, value in labels.items())


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


PAGE = 200  # The largest page of a search.
STATES = ("ready", "claimed", "expired", "scheduled", "failed")

NO_GROUP = "no groups with tasks that you can access"
STATS = (
    Column(title="group", style="bold", is_long=True, is_folded=True),
    Column(title="ready", is_number=True, is_kept=True, style="blue"),
    Column(title="claimed", is_number=True, is_kept=True, style="green"),
    Column(title="expired", is_number=True, is_kept=True, style="yellow"),
    Column(title="scheduled", is_number=True, is_kept=True, style="magenta"),
    Column(title="failed", is_number=True, is_kept=True, style="red"),
    Column(title="oldest", is_number=True, is_kept=True),  # How long the oldest ready task has been ready.
    Column(title="in, out/min", is_number=True),
    Column(title=""),
)
STEPS = (
    Column(title="id", is_number=True, style="cyan"),
    Column(title="made"),
    Column(title="group", style="bold", is_long=True),
    Column(title="owner", is_number=True),
    Column(title="became", is_long=True),
    Column(title="after", is_number=True),
    Column(title="by", is_long=True),
    Column(title="error", is_long=True, style="red"),
)
WORKERS = (
    Column(title="worker", style="bold"),
    Column(title="client", is_number=True, style="cyan"),
    Column(title="host"),
    Column(title="pid", is_number=True),
    Column(title="reported", is_number=True),
    Column(title="pulse"),
    Column(title="done/min", is_number=True),
    Column(title="groups", is_long=True),
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
    found = session.some(of_groups(session.store.stats().groups, groups), nothing)
    if session.tell(map(as_json, found)):
        return
    session.show(table(STATS, rows_of(found)))


def of_groups(found: Iterable[GroupStats], patterns: Sequence[str]) -> list[GroupStats]:
    """Return the groups that match a pattern, or all without patterns."""
    return [each for each in found if not patterns or any(is_in_group(pattern, each.group) for pattern in patterns)]


def rows_of(found: Sequence[GroupStats]) -> Iterator[list[str]]:
    """Yield a row for each group and one with the totals."""
    for each in found:
        oldest = "" if each.oldest_ready_ms is None else rough(each.oldest_ready_ms)
        beside = {"retrying": each.retrying, "dead": each.dead, "finished": each.finished}
        notes = ["paused"] * each.paused + [f"{number(count)} {what}" for what, count in beside.items() if count]
        note = ", ".join(notes)
        yield [each.group, *_counts([each]), oldest, _rates([each]), note]
    if len(found) > 1:
        yield ["all", *_counts(found), "", _rates(found), ""]


def _counts(groups: Sequence[GroupStats]) -> list[str]:
    return [number(sum(getattr(each, state) for each in groups)) for state in STATES]


def _rates(groups: Sequence[GroupStats]) -> str:
    entered, left = sum(each.in_per_minute for each in groups), sum(each.out_per_minute for each in groups)
    return f"{rate(entered)}, {rate(left)}" if entered or left else ""


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
    tell_tasks(
        session, found, limit, nothing=f"no matching tasks in {group}" if state or labels else f"no tasks in {group}"
    )


@command("search", needs=Scope.READ)
@click.argument("terms", nargs=-1, required=True, metavar="TERM...")
@parameter_types.limit
def search(session: Session, terms: Sequence[str], limit: int) -> None:
    """List the tasks that match every TERM: group:mail state:retrying 'error:"timed out"' -owner:17 age:>1h."""
    tell_tasks(
        session, search_all(session, " ".join(terms), limit), limit, nothing="no matching tasks", with_group=True
    )


def search_all(session: Session, query: str, limit: int) -> Iterator[Task]:
    """Yield the results of a search page by page. `limit`: how many the caller shows; 0: all."""
    after = None
    # One more than is shown, to know whether there are more.
    size = min(PAGE, limit + 1) if limit else PAGE
    while True:
        page = session.store.search(query, after=after, limit=size)
        yield from page.tasks
        after = page.after
        if after is None:
            return


def tell_tasks(session: Session, found: Iterable[Task], limit: int, *, nothing: str, with_group: bool = False) -> None:
    """Print up to `limit` tasks, and note if there are more. `nothing`: the failure if there are none."""
    rest = iter(found)
    first = session.some(list(islice(rest, 1)), nothing)
    tasks = chain(first, islice(rest, limit - 1 if limit else None))
    if not session.tell(map(as_json, tasks)):
        session.show(tasks_table(tasks, now_ms(), with_group=with_group))
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
    session.show(whole(task, now_ms()))


def living(session: Session, id: int) -> Task:
    """Return the current task of an id's chain. Raises Failure if the chain has ended."""
    chain = history_of(session, id)
    last = chain.steps[-1]
    task = session.store.task(last.id) if last.ended is None else None
    if task is None:
        raise Failure(f"task {id} has ended: {how_it_ended(last, now_ms())}")
    return task


def how_it_ended(step: Step, now_ms: int) -> str:
    """Describe the end of an id: `deleted by client 17, 3 min ago`."""
    if step.ended is None:
        return "replaced just now"
    reason = f" ({step.ended.reason})" if step.ended.reason else ""
    return f"{step.ended.how} by {_who(step)}{reason}, {relative(step.ended.at_ms, now_ms)}"


def _who(step: Step) -> str:
    return (step.ended.operator or f"client {step.ended.client_id}") if step.ended else ""


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
    session.say(f"task {found.origin}, added {when(found.created_at_ms, now_ms())}")
    session.show(table(STEPS, map(_step_cells, found.steps)))


def _step_cells(step: Step) -> list[str]:
    end = step.ended
    became = "" if end is None else f"{end.how}, now {end.successor}" if end.successor else str(end.how)
    return [
        str(step.id),
        exact(step.made_at_ms),
        step.group,
        str(step.owner or "") if step.claims else "",
        became,
        duration(end.at_ms - step.made_at_ms) if end else "",
        _who(step) + (f": {end.reason}" if end and end.reason else ""),
        step.error,
    ]


@command("workers", needs=Scope.READ)
def workers(session: Session) -> None:
    """List the workers that reported within the last day, most recent first."""
    found = session.some(session.store.clients(), "no worker has reported within the last day")
    if session.tell(map(as_json, found)):
        return
    session.show(table(WORKERS, map(_worker_cells, found)))


def _worker_cells(worker: ClientStatus) -> list[str]:
    return [
        worker.name,
        str(worker.client_id),
        worker.host,
        str(worker.pid or ""),
        relative(0, worker.age_ms),
        pulse_of(worker.age_ms),
        rate(worker.done_per_minute or 0),
        " ".join(worker.groups),
    ]
