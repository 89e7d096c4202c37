"""The methods of both clients: one for each endpoint, and those that say more than a request does."""

from __future__ import annotations

import codecs
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec import structs
from msgspec.structs import replace

from .. import endpoints
from ..errors import CommitRefused, refuse
from ..types import requests
from ..types.bulk import BulkPreviewRequest, BulkRequest, Operation, Preview, SelectedTasks, WithClaimed
from ..types.groups import ClientStatus
from ..types.history import AuditRequest
from ..types.progress import Progress, problems_of
from ..types.tasks import (
    NAMED,
    Cancelled,
    Change,
    Imported,
    NewTask,
    Order,
    Outcome,
    Problem,
    State,
    Task,
    ids_without_delete,
)
from .calls import Call, asking, calls, decoder, encoded, verb, verb_or_none
from .errors import UnexpectedAnswer
from .transport import BaseClient

SEPARATORS = "[,] \n\r\t"

T = TypeVar("T")


class AskedPreview(Preview, frozen=True, kw_only=True):
    """A preview together with its request, as `bulk_start` needs both."""

    asked: SelectedTasks


class CommitOnTheWire:
    """The JSON body of a commit and the parser of its response.

    A REST update can't change the group of a task. Such a change is sent as a delete and an add that keeps the
    fields it does not name, and is translated back into an update in the response and in errors.

    Raises InvalidInput for ids and groups that the server would ignore.
    """

    def __init__(
        self,
        owner: int,
        adds: Iterable[NewTask] = (),
        updates: Iterable[Change] = (),
        deletes: Iterable[int] = (),
        depends: Iterable[int] = (),
    ) -> None:
        adds, updates, deletes = list(adds), list(updates), list(deletes)
        refuse([*_of_other_types("adds", adds, NewTask), *_of_other_types("updates", updates, Change)])
        refuse(
            [
                *ids_without_delete(adds, deletes),
                *(
                    (f"updates[{place}].group", "must be the name of a group, or None to stay in the group")
                    for place, change in enumerate(updates)
                    if change.group == ""
                ),
            ]
        )
        stays = [place for place, change in enumerate(updates) if change.group is None]
        moves = [place for place, change in enumerate(updates) if change.group is not None]
        self._adds, self._updates = len(adds), [*moves, *stays]
        self._moved = {updates[place].id for place in moves}
        self.asked = requests.UpdateRequest(
            clientid=owner,
            adds=(*map(add_on_the_wire, adds), *(_move(updates[place]) for place in moves)),
            updates=tuple(_update(updates[place]) for place in stays),
            deletes=(*deletes, *(updates[place].id for place in moves)),
            depends=tuple(depends),
        )
        self.renamed = {f"adds[{len(adds) + sent}]": f"updates[{place}]" for sent, place in enumerate(moves)} | {
            f"updates[{sent}]": f"updates[{place}]" for sent, place in enumerate(stays)
        }

    def tasks_in(self, answer: bytes) -> list[Task]:
        """Return the new tasks: adds, then updates. Raises CommitRefused."""
        outcome = outcome_in(answer)
        if self._moved and (refusal := outcome.error):
            changes = [task_id for task_id in refusal.deletes if task_id in self._moved]
            deletes = tuple(task_id for task_id in refusal.deletes if task_id not in self._moved)
            raise CommitRefused(replace(refusal, changes=(*refusal.changes, *changes), deletes=deletes))
        tasks = tasks_of(outcome)
        changed = dict(zip(self._updates, tasks[self._adds :], strict=True))
        return [*tasks[: self._adds], *(changed[place] for place in sorted(changed))]


def _of_other_types(field: str, items: Sequence[object], right: type) -> Iterator[Problem]:
    for place, item in enumerate(items):
        if not isinstance(item, right):
            yield f"{field}[{place}]", f"must be a {right.__name__}, not a {type(item).__name__}"


def add_on_the_wire(add: NewTask) -> requests.AddOrMove:
    named = {name: value for name, value in _named(add).items() if value}  # The server's defaults are empty.
    return requests.AddOrMove(
        id=add.id,
        group=add.group,
        unique_for=add.unique_for_ms,
        batch=add.batch,
        **named,
        **_unique(add),
        **_data(add.data),
    )


def _update(change: Change) -> requests.Update:
    return requests.Update(id=change.id, keep=change.data is None or change.error is None, **_changed(change))


def _move(change: Change) -> requests.AddOrMove:
    return requests.AddOrMove(id=change.id, group=change.group or "", keep=True, **_changed(change))


def _changed(change: Change) -> dict[str, Any]:
    """Return the members for the fields that the change sets."""
    named = {name: value for name, value in _named(change).items() if value is not None}
    data = {} if change.data is None else _data(change.data)
    return {"release": change.release, **named, **_unique(change), **data}


def _named(item: NewTask | Change) -> dict[str, Any]:
    values = {name: getattr(item, name) for name in NAMED}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return {"timespec": item.timespec_ms or None, **plain}


def _unique(item: NewTask | Change) -> dict[str, Any]:
    return {} if item.unique is None else {"unique": item.unique}


def _data(data: bytes | str) -> dict[str, Any]:
    if isinstance(data, str):
        return {"data": data}
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"data must be bytes or str, not {type(data).__name__}; json.dumps converts other values")
    try:
        return {"data": bytes(data).decode()}
    except UnicodeDecodeError:
        return {"data_base64": bytes(data)}


def outcome_in(answer: bytes) -> Outcome:
    """Parse the response to a commit. Duplicates may lack most fields of a task, or data that came with another one."""
    if b'"duplicate":true' not in answer:
        return decoder(Outcome)(answer)
    tree = msgspec.json.decode(answer)
    blank = msgspec.to_builtins(Task.make(0))
    said: dict[int, dict[str, Any]] = {}  # The data of each task, with its type.
    for task in tree["tasks"]:
        if "data" in task:
            said[task["id"]] = {name: task[name] for name in ("data", "data_base64", "data_type") if name in task}
    tree["tasks"] = [
        blank | said.get(task["id"], {}) | task | {"id": task["id"] or 0} if task.get("duplicate") else task
        for task in tree["tasks"]
    ]
    return msgspec.convert(tree, Outcome)


def tasks_of(outcome: Outcome) -> list[Task]:
    """Return the new tasks of a commit or a claim. Raises CommitRefused."""
    if outcome.error:
        raise CommitRefused(outcome.error)
    return [*outcome.tasks]


class Verbs(BaseClient):
    groups = verb(endpoints.GROUPS)
    stats = verb(endpoints.STATS)
    task = verb_or_none(endpoints.TASK)
    history = verb_or_none(endpoints.HISTORY)
    cancel = verb(endpoints.CANCEL)
    search = verb(endpoints.SEARCH)
    clients = verb(endpoints.CLIENTS)
    pause = verb(endpoints.PAUSE)
    resume = verb(endpoints.RESUME)
    limits = verb(endpoints.LIMITS)
    group_limits = verb_or_none(endpoints.GROUP_LIMITS)
    set_limits = verb(endpoints.PUT_LIMITS)
    remove_limits = verb_or_none(endpoints.DELETE_LIMITS)
    audit = asking(endpoints.AUDIT, AuditRequest)
    operations = verb(endpoints.OPERATIONS)
    operation = verb(endpoints.OPERATION)
    operation_items = verb(endpoints.OPERATION_ITEMS)
    cancel_operation = verb(endpoints.CANCEL_OPERATION)
    undo_operation = verb(endpoints.UNDO_OPERATION)
    health = verb(endpoints.HEALTHZ)
    ready = verb(endpoints.READYZ)
    schema = verb(endpoints.SCHEMA)

    @calls
    def tasks(self, ids: Iterable[int]) -> Call[list[Task | None]]:
        """Return the tasks with these ids in the same order, with None for each id that does not exist."""
        return Call.of(endpoints.TASKS_BY_BODY, requests.TasksRequest(tuple(ids)))

    @calls
    def metrics(self) -> Call[str]:
        """Return the server's metrics in the Prometheus text format."""
        return Call.of(endpoints.METRICS, requests.Nothing(), read=bytes.decode)

    @calls
    def claim(
        self,
        groups: str | Iterable[str],
        *,
        duration_ms: int = 60_000,
        limit: int = 1,
        wait_ms: int = 0,
        order: Order | str = Order.RANDOM,
        depends: Iterable[int] = (),
    ) -> Call[list[Task]]:
        """Claim up to `limit` available tasks and lease them for `duration_ms`.

        Returns an empty list if no task is available. With several groups, tasks of higher priority come first.
        `wait_ms`: how long to wait for a task, without an upper bound. `depends`: ids of tasks that must exist;
        raises CommitRefused if one does not.
        """
        asked = requests.ClaimRequest(
            clientid=self.id,
            group=groups if isinstance(groups, str) else None,
            groups=() if isinstance(groups, str) else tuple(groups),
            duration=duration_ms,
            limit=limit,
            order=cast("Order", order),
            depends=tuple(depends),
        )
        return Call.of(
            endpoints.CLAIM,
            asked,
            read=lambda content: tasks_of(decoder(Outcome)(content)),
            may_happen_twice=True,
            wait_ms=max(0, wait_ms),
        )

    @calls
    def commit(
        self,
        *,
        adds: Iterable[NewTask] = (),
        updates: Iterable[Change] = (),
        deletes: Iterable[int] = (),
        depends: Iterable[int] = (),
        client_id: int | None = None,
        key: str = "",
    ) -> Call[list[Task]]:
        """Apply all of these changes or none. Returns the new tasks: adds, then updates.

        `updates` replace tasks by successors with new ids. `depends`: ids of tasks that must exist. `client_id`:
        the client to commit as, by default this one. `key`: of this commit, to send it again after CommitUnknown
        without applying it twice; by default a new one. Raises CommitRefused, whose `refusal` lists the ids that no
        longer exist or are leased to another client.
        """
        owner = self.id if client_id is None else client_id
        return committing(CommitOnTheWire(owner, adds, updates, deletes, depends), list, key)

    @calls
    def add(
        self,
        group: str,
        data: bytes | str = b"",
        *,
        data_type: str = "",
        timespec_ms: int = 0,
        error: str = "",
        labels: Mapping[str, str] | None = None,
        priority: int = 0,
        unique: str | None = None,
        unique_for_ms: int = 0,
        batch: int = 0,
    ) -> Call[Task]:
        """Add a task and return it.

        `unique`: a key of 1 to 255 characters. If another task of the group holds this key, nothing is added, and
        that task is returned with `duplicate` True. `unique_for_ms`: how long after the add the key stays reserved
        even if the task ends, up to 30 days; the duplicate then has only its `id`, and `ending` says how it ended.
        The id is 0 if the token can't access the task.

        `timespec_ms`: when the task becomes available, in milliseconds. 0: now; negative: its absolute value from
        now; positive: that time since the Epoch. `priority`: -100 to 100, larger first. `data_type`: the type URL
        of data that is a protobuf Any. `batch`: an open batch that the task joins. Raises InvalidInput.
        """
        new = NewTask(
            group=group,
            data=data.encode() if isinstance(data, str) else data,
            data_type=data_type,
            timespec_ms=timespec_ms,
            error=error,
            labels=labels or {},
            priority=priority,
            unique=unique,
            unique_for_ms=unique_for_ms,
            batch=batch,
        )
        return self._one(adds=[new])

    @calls
    def renew(self, task: Task, duration_ms: int) -> Call[Task]:
        """Extend the lease to `duration_ms` from now. Returns the successor, whose id is new.

        Raises CommitRefused if the task no longer exists or another client holds it.
        """
        change = Change(id=task.id, timespec_ms=-max(0, duration_ms))
        return self._one(updates=[change])

    @calls
    def release(self, task: Task, at_ms: int = 0, error: str | None = None) -> Call[Task]:
        """Give the task back so that any client can claim it. Returns the successor.

        `at_ms`: when it becomes available, as the `timespec_ms` of `add`. `error`: the new error text; None keeps the
        present one, "" clears it. Raises CommitRefused if the task no longer exists or another client holds it.
        """
        return self._one(updates=[Change(id=task.id, timespec_ms=at_ms, error=error, release=True)])

    @calls
    def move(self, task: Task, group: str, data: bytes | str | None = None, error: str | None = None) -> Call[Task]:
        """Move the task to another group, where it is available immediately. Returns the successor.

        `data` and `error` replace the present values; None keeps them, `error=""` clears the error.
        Raises CommitRefused if the task no longer exists or another client holds it.
        """
        new_data = data.encode() if isinstance(data, str) else data
        return self._one(updates=[Change(id=task.id, group=group, data=new_data, error=error)])

    @calls
    def delete(self, *tasks: Task | int) -> Call[None]:
        """Delete all of these tasks or none. Takes tasks or ids.

        Raises CommitRefused if one no longer exists or another client holds it.
        """
        ids = [task.id if isinstance(task, Task) else task for task in tasks]
        return committing(CommitOnTheWire(self.id, deletes=ids), lambda tasks: None)

    @calls
    def import_tasks(self, lines: bytes | str | Iterable[NewTask], group: str = "") -> Call[Imported]:
        """Add all of these tasks or none: lines of NDJSON as `export_tasks` writes them, or NewTask values.

        `group`: add all tasks to this group instead of their own. Raises InvalidInput, which names the lines.
        """
        if isinstance(lines, str):
            lines = lines.encode()
        elif not isinstance(lines, bytes):
            adds = list(lines)
            refuse(
                (f"line {number}: id", "must be 0: an import adds new tasks")
                for number, add in enumerate(adds, 1)
                if add.id
            )
            lines = b"\n".join(encoded(add_on_the_wire(add)) for add in adds)
        return Call.of(endpoints.IMPORT, requests.ImportFile(group or None), lines=lines)

    @calls
    def cancelled(self, *, after: str = "", wait_ms: int = 0) -> Call[Cancelled]:
        """Return the tasks that were cancelled while this client held them: their last ids, perhaps none.

        `after`: the one of the previous answer, for later ones only. `wait_ms`: how long to wait for one.
        """
        asked = requests.CancelledRequest(clientid=self.id, after=after, wait=wait_ms)
        return Call.of(endpoints.CANCELLED, asked, wait_ms=wait_ms)

    @calls
    def heartbeat(
        self,
        name: str = "",
        *,
        host: str | None = None,
        pid: int | None = None,
        groups: Iterable[str] = (),
        version: str = "",
        info: Mapping[str, Any] | None = None,
    ) -> Call[ClientStatus]:
        """Report that this worker is alive. Call it every few seconds.

        After 30 s of silence the worker counts as late, and its waiting claims get nothing: it may be stopped.

        `groups`: the groups it claims from. `info`: any JSON to show to operators. Returns the record as stored.
        """
        asked = requests.ClientRequest(
            clientid=self.id,
            name=name,
            host=socket.gethostname() if host is None else host,
            pid=os.getpid() if pid is None else pid,
            groups=tuple(groups),
            version=version,
            info=dict(info or {}),
        )
        return Call.of(endpoints.HEARTBEAT, asked)

    @calls
    def report_progress(self, id: int, done: float, text: str = "") -> Call[Progress]:
        """Report the progress of a task that this client holds: `done` from 0 to 1, and a text of up to 255 characters.

        `id`: any id of its chain. The server stores at most one report a second, the last one. Raises NotHeld if the
        task is not leased to this client; NotFound if it has ended; InvalidInput.
        """
        refuse(problems_of(done, text))
        return Call.of(endpoints.PROGRESS, requests.ProgressRequest(id=id, clientid=self.id, done=done, text=text))

    @calls
    def bulk_preview(
        self,
        /,
        verb: str,
        *,
        group: str | None = None,
        state: State | str | None = None,
        q: str = "",
        ids: Iterable[int] | None = None,
        **options: Any,
    ) -> Call[AskedPreview]:
        """Preview a bulk operation: how many tasks it would change, and a sample of them.

        `verb`: requeue, move, edit, cancel or purge. Select tasks by `ids`, or by `group`, `state` and the search `q`
        together. The only option of a preview is `here` of a requeue, which keeps dead letters in their group instead
        of returning them to the group in which they failed.
        """
        which: Any = {"group": group, "state": state, "ids": None if ids is None else tuple(ids)}
        asked = BulkPreviewRequest(verb=verb, q=q, **which, **options)
        read = decoder(Preview)
        return Call.of(
            endpoints.BULK_PREVIEW,
            asked,
            read=lambda content: AskedPreview(**structs.asdict(read(content)), asked=asked),
        )

    @calls
    def bulk_start(
        self, /, preview: AskedPreview, *, take_claimed: bool = False, reason: str = "", typed: str = "", **options: Any
    ) -> Call[Operation]:
        """Start the bulk operation of a preview in the background. `operation` reports its progress.

        `take_claimed`: include leased tasks, whose workers' results will be rejected. `options`: `to` and `create` of a
        move; `error` and `priority` of an edit; `at` (ms since the Epoch), `spread_minutes` and `here` of a requeue.
        Raises InvalidInput if the number of tasks has changed by more than 10 and by more than 1 % since the preview,
        or if `typed` is not the preview's `to_type`.
        """
        asked = BulkRequest(
            **{**structs.asdict(preview.asked), **options},
            bound=preview.bound,
            as_of=preview.as_of,
            expected=preview.count,
            claimed=WithClaimed.TAKE if take_claimed else WithClaimed.SKIP,
            reason=reason,
            typed=typed,
        )
        return Call.of(endpoints.BULK, asked)

    def _one(self, adds: Iterable[NewTask] = (), updates: Iterable[Change] = ()) -> Call[Task]:
        def only(tasks: list[Task]) -> Task:
            [task] = tasks
            return task

        return committing(CommitOnTheWire(self.id, adds, updates), only)


def committing(sent: CommitOnTheWire, shape: Callable[[list[Task]], T], key: str = "") -> Call[T]:
    return Call.of(
        endpoints.UPDATE, sent.asked, read=lambda answer: shape(sent.tasks_in(answer)), key=key, renamed=sent.renamed
    )


class TaskListParser:
    """Parse a JSON list of tasks while it arrives, because a group may not fit into memory."""

    def __init__(self) -> None:
        self._text = ""
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._decoder = json.JSONDecoder()
        self._next_try = 0  # Characters needed before the next attempt: a large task may arrive in small chunks.

    def feed(self, chunk: bytes) -> Iterator[Task]:
        """Yield the tasks that are complete. Raises UnexpectedAnswer if an element is not a task."""
        self._text += self._utf8.decode(chunk)
        if len(self._text) < self._next_try:
            return
        place = 0
        while True:
            while place < len(self._text) and self._text[place] in SEPARATORS:
                place += 1
            try:
                tree, place = self._decoder.raw_decode(self._text, place)
            except ValueError:  # The rest of the element has not arrived.
                break
            try:
                yield msgspec.convert(tree, Task)
            except msgspec.ValidationError as problem:
                raise UnexpectedAnswer(f"the response has an invalid task: {problem!r}") from problem
        self._text = self._text[place:]
        self._next_try = 2 * len(self._text)

    def end(self) -> Iterator[Task]:
        """Yield the last tasks. Raises UnexpectedAnswer if the list is incomplete."""
        self._next_try = 0
        yield from self.feed(b"")
        if self._text:
            raise UnexpectedAnswer(f"the response is not a list of tasks: {self._text[:100]}")
