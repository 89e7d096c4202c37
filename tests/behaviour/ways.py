"""The ways into the store, all behind the same few verbs, so that one suite proves each of them.

A new way in is one more class, here or beside, and one more entry in the table of ways.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from asgiref.sync import async_to_sync
from django.db import connection

import taskstore
from tasks_app.access import tokens
from tasks_app.control import progress as reports
from tasks_app.core.operations import GroupScope
from tasks_app.models import EndedTask, Scope, Task
from tasks_app.reading import history
from taskstore import Client
from taskstore.client.errors import NotAllowed, NotFound
from taskstore.errors import Forbidden
from taskstore.types import history as wire_history
from taskstore.types.tasks import Change, Ending, NewTask, Order
from tests.served import Served


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A task as every way in shows it."""

    id: int
    group: str
    available_at_ms: int
    owner: int
    data: bytes
    data_type: str
    error: str
    labels: dict[str, str]
    priority: int
    origin: int
    claims: int
    created_at_ms: int
    unique: str
    duplicate: bool = False
    ending: str = ""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One of the ids that a task had, and what became of it; without an ending it is still there."""

    id: int
    group: str
    owner: int
    made_by_commit: int
    ending: Ending | None = None
    ended_by: int | None = None
    ended_by_commit: int | None = None
    successor: int | None = None
    operator: str = ""
    reason: str = ""


class Store(Protocol):
    """What the suite asks of a way in. Refusals and bad input are raised as the manager raises them."""

    def commit(
        self,
        *,
        owner: int,
        adds: Iterable[NewTask] = (),
        updates: Iterable[Change] = (),
        deletes: Iterable[int] = (),
        depends: Iterable[int] = (),
    ) -> list[Seen]: ...

    def claim(
        self,
        group: str,
        *,
        owner: int,
        duration_ms: int = 60_000,
        limit: int = 1,
        order: Order = Order.RANDOM,
        depends: Iterable[int] = (),
    ) -> list[Seen]: ...

    def find(self, ids: Iterable[int]) -> list[Seen | None]: ...

    def group(self, name: str, *, owned: bool = False, limit: int | None = None) -> list[Seen]: ...

    def groups(self) -> list[str]: ...

    def history(self, task_id: int) -> list[Step] | None:
        """The steps of the chain that the id belongs to, the oldest first; None: no such id is known."""

    def report_progress(self, task_id: int, *, owner: int, done: float, text: str = "") -> None:
        """Raises LookupError when there is no such task."""

    def progress(self, task_id: int) -> tuple[float, str] | None: ...

    def within(self, *patterns: str) -> Self:
        """The same way in for somebody who may touch only the groups of these patterns."""


class Manager:
    """Python callers: `Task.objects`, in a process without a server."""

    needs = ""  # The fixture of the server, if it needs one.

    def __init__(self, served: Served | None, *patterns: str) -> None:
        self.served = served
        self.scope = GroupScope(patterns or None)

    def commit(self, **asked: Any) -> list[Seen]:
        return [seen(task) for task in Task.objects.commit(**asked, scope=self.scope)]

    def claim(self, group: str, **asked: Any) -> list[Seen]:
        return [seen(task) for task in Task.objects.claim(group, **asked, scope=self.scope)]

    def find(self, ids: Iterable[int]) -> list[Seen | None]:
        return [None if task is None else seen(task) for task in Task.objects.find(ids, self.scope)]

    def group(self, name: str, **asked: Any) -> list[Seen]:
        return [seen(task) for task in Task.objects.group(name, **asked)]

    def groups(self) -> list[str]:
        return Task.objects.groups(self.scope)

    def history(self, task_id: int) -> list[Step] | None:
        chain = history.chain_of(task_id, self.scope)
        if chain is None:
            return None
        return [ended_step(ended) for ended in chain.ended] + ([living_step(chain.living)] if chain.living else [])

    def report_progress(self, task_id: int, **asked: Any) -> None:
        if reports.report(task_id, **asked, scope=self.scope) is None:
            raise LookupError(task_id)

    def progress(self, task_id: int) -> tuple[float, str] | None:
        [task] = Task.objects.find([task_id])
        found = task and reports.progress_of([task]).get(task.origin)
        return (found.done, found.text) if found else None

    def within(self, *patterns: str) -> Self:
        return type(self)(self.served, *patterns)


class ManagerInServer(Manager):
    """The same in a thread of a server, whose writer does it together with what others ask."""

    needs = "served"


class AsyncManager(Manager):
    """The async twins of the same verbs."""

    def commit(self, **asked: Any) -> list[Seen]:
        return [seen(task) for task in async_to_sync(Task.objects.acommit)(**asked, scope=self.scope)]

    def claim(self, group: str, **asked: Any) -> list[Seen]:
        return [seen(task) for task in async_to_sync(Task.objects.aclaim)(group, **asked, scope=self.scope)]

    def find(self, ids: Iterable[int]) -> list[Seen | None]:
        return [None if task is None else seen(task) for task in async_to_sync(Task.objects.afind)(ids, self.scope)]

    def group(self, name: str, **asked: Any) -> list[Seen]:
        return [seen(task) for task in async_to_sync(Task.objects.agroup)(name, **asked)]

    def groups(self) -> list[str]:
        return async_to_sync(Task.objects.agroups)(self.scope)


def seen(task: Task) -> Seen:
    values = {name: getattr(task, name) for name in Seen.__dataclass_fields__}
    return Seen(**values | {"data": bytes(task.data)})


def living_step(task: Task) -> Step:
    return Step(id=task.id, group=task.group, owner=task.owner, made_by_commit=task.made_by_commit)


def ended_step(ended: EndedTask) -> Step:
    names = ("id", "group", "owner", "made_by_commit", "ended_by", "ended_by_commit", "successor", "operator", "reason")
    return Step(ending=Ending(ended.ending), **{name: getattr(ended, name) for name in names})


class ThroughClient:
    """REST by the Python client, with a token that may work; from the server of `up`."""

    needs = "served"

    def __init__(self, served: Served, *patterns: str) -> None:
        self.served = served
        _, self.secret = tokens.create("the suite", Scope.WORK, patterns)

    def commit(self, *, owner: int, **asked: Any) -> list[Seen]:
        with self.client_of(owner) as client:
            return [seen_by_client(task) for task in client.commit(**asked)]

    def claim(self, group: str, *, owner: int, **asked: Any) -> list[Seen]:
        with self.client_of(owner) as client:
            return [seen_by_client(task) for task in client.claim(group, **asked)]

    def find(self, ids: Iterable[int]) -> list[Seen | None]:
        with self.client_of() as client:
            return [None if task is None else seen_by_client(task) for task in client.tasks(ids)]

    def group(self, name: str, *, owned: bool = False, limit: int | None = None) -> list[Seen]:
        with self.client_of() as client:
            return [seen_by_client(task) for task in client.group(name, owned=owned, limit=limit or 0)]

    def groups(self) -> list[str]:
        with self.client_of() as client:
            return client.groups()

    def history(self, task_id: int) -> list[Step] | None:
        with self.client_of() as client:
            found = client.history(task_id)
            return None if found is None else [step_by_client(step) for step in found.steps]

    def report_progress(self, task_id: int, *, owner: int, **said: Any) -> None:
        with self.client_of(owner) as client:
            try:
                client.report_progress(task_id, **said)
            except NotFound as problem:
                raise LookupError(task_id) from problem
            except NotAllowed as problem:
                raise Forbidden(str(problem)) from problem

    def progress(self, task_id: int) -> tuple[float, str] | None:
        with self.client_of() as client:
            found = client.task(task_id)
            progress = found and found.progress
            return (progress.done, progress.text) if progress else None

    def within(self, *patterns: str) -> Self:
        return type(self)(self.served, *patterns)

    def client_of(self, owner: int = 0) -> Client:
        return Client(self.served.url, token=self.secret, client_id=owner)


def seen_by_client(task: taskstore.Task) -> Seen:
    values = {name: getattr(task, name) for name in Seen.__dataclass_fields__}
    return Seen(**values)


def step_by_client(step: wire_history.Step) -> Step:
    living = Step(id=step.id, group=step.group, owner=step.owner, made_by_commit=step.made_by_commit)
    end = step.ended
    if end is None:
        return living
    return replace(
        living,
        ending=end.how,
        ended_by=end.client_id,
        ended_by_commit=end.commit,
        successor=end.successor,
        operator=end.operator,
        reason=end.reason,
    )


class ThroughClientOfServe(ThroughClient):
    """The same from the server of `serve`, which is for PostgreSQL only."""

    needs = "served_by_uvicorn"


WAYS: dict[str, Any] = {
    "manager": Manager,
    "async": AsyncManager,
    "server": ManagerInServer,
    "client-daphne": ThroughClient,
}
if connection.vendor == "postgresql":
    WAYS["client-uvicorn"] = ThroughClientOfServe
