"""The ways into the store, all behind the same few verbs, so that one suite proves each of them.

A new way in is one more class, here or beside, and one more entry in the table of ways.
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self
from urllib.parse import quote

import httpx
import pytest
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
from taskstore.errors import CommitRefused, Forbidden, InvalidInput, LimitExceeded, NotHeld
from taskstore.types import history as wire_history
from taskstore.types.tasks import Change, Ending, NewTask, Order, Refusal
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
    batch: int = 0
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


class Rest:
    """HTTP and JSON over a socket, with a token that may work; from the server of `up`."""

    needs = "served"

    def __init__(self, served: Served, *patterns: str) -> None:
        self.served, self.patterns = served, patterns
        _, secret = tokens.create("the suite", Scope.WORK, patterns)
        self.headers = {"Authorization": f"Bearer {secret}"}

    def commit(self, *, owner, adds=(), updates=(), deletes=(), depends=()) -> list[Seen]:
        return self.post(
            "/update",
            clientid=owner,
            adds=[add_on_the_wire(add) for add in adds],
            updates=[change_on_the_wire(change) for change in updates],
            deletes=list(deletes),
            depends=list(depends),
        )

    def claim(self, group, *, owner, duration_ms=60_000, limit=1, order=Order.RANDOM, depends=()) -> list[Seen]:
        asked = {"group": group, "duration": duration_ms, "limit": limit, "order": order, "depends": list(depends)}
        return self.post("/claim", clientid=owner, **asked)

    def find(self, ids: Iterable[int]) -> list[Seen | None]:
        answer = self.ask("POST", "/tasks", json={"ids": list(ids)})
        return [task and seen_on_the_wire(task) for task in content(answer)]

    def group(self, name: str, *, owned: bool = False, limit: int | None = None) -> list[Seen]:
        query = f"owned={owned}" + ("" if limit is None else f"&limit={limit}")
        # A path can't carry dots alone: they would lead elsewhere.
        has_dots = not {".", ".."}.isdisjoint(name.split("/"))
        path = f"/group?name={quote(name, safe='')}&{query}" if has_dots else f"/group/{quote(name)}?{query}"
        return [seen_on_the_wire(task) for task in content(self.ask("GET", path))]

    def groups(self) -> list[str]:
        names: list[str] = content(self.ask("GET", "/groups"))
        return names

    def history(self, task_id: int) -> list[Step] | None:
        answer = self.ask("GET", f"/history/{task_id}")
        return None if answer.status_code == 404 else [step_on_the_wire(step) for step in content(answer)["steps"]]

    def report_progress(self, task_id: int, *, owner: int, done: float, text: str = "") -> None:
        said = {"clientid": owner, "done": done, "text": text}
        # Not the JSON of httpx, which refuses NaN before it is sent.
        answer = self.ask("PUT", f"/progress/{task_id}", content=json.dumps(said))
        if answer.status_code == 404:
            raise LookupError(answer.json()["detail"])
        if answer.status_code == 409:
            assert answer.json()["code"] == NotHeld.code
            raise NotHeld(answer.json()["detail"])
        if answer.status_code == 403:
            raise Forbidden(answer.json()["detail"])
        told = content(answer)
        assert (told["done"], told["text"]) == (done, text)

    def progress(self, task_id: int) -> tuple[float, str] | None:
        found = content(self.ask("GET", f"/task/{task_id}")).get("progress")
        return found and (found["done"], found["text"])

    def within(self, *patterns: str) -> Self:
        return type(self)(self.served, *patterns)

    def post(self, path: str, **body: Any) -> list[Seen]:
        answer = content(self.ask("POST", path, json=body))
        if answer["error"]:
            lists = {name: tuple(which) for name, which in answer["error"].items()}
            raise CommitRefused(Refusal(**lists))
        said = {task["id"]: task for task in answer["tasks"] if "data" in task}
        # The data of a duplicate comes once.
        return [seen_on_the_wire(said.get(task["id"], {}) | task) for task in answer["tasks"]]

    def ask(self, method: str, path: str, **asked: Any) -> httpx.Response:
        return self.served.request(method, path, headers=self.headers, **asked)


class RestOfServe(Rest):
    """The same from the server of `serve`, which is for PostgreSQL only."""

    needs = "served_by_uvicorn"


class ThroughClient:
    """The Python client, with a token that may work; from the server of `up`."""

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


def content(answer: httpx.Response) -> Any:
    """The JSON of an answer. Raises InvalidInput when the request was not understood."""
    if answer.status_code in (400, 413):
        kind = LimitExceeded if answer.status_code == 413 else InvalidInput
        raise kind(answer.json()["errors"])
    assert answer.status_code == 200, (answer.status_code, answer.text)
    return answer.json()


def add_on_the_wire(add: NewTask) -> dict[str, Any]:
    return {
        "group": add.group,
        "labels": add.labels,
        "priority": add.priority,
        "id": add.id,
        "batch": add.batch,
        **fields_on_the_wire(add),
    } | ({"unique_for": add.unique_for_ms} if add.unique_for_ms else {})


def change_on_the_wire(change: Change) -> dict[str, Any]:
    if change.group is not None:
        pytest.skip("an update over REST never changes the group: an add with `keep` does")
    stay = {"labels": change.labels, "priority": change.priority}
    said = {name: value for name, value in stay.items() if value is not None}
    return {"id": change.id, "release": change.release, "keep": True, **fields_on_the_wire(change), **said}


def fields_on_the_wire(item: NewTask | Change) -> dict[str, Any]:
    said = {"timespec": item.timespec_ms, "error": item.error, "data_type": item.data_type, "unique": item.unique}
    if item.data is not None:
        said |= {"data": item.data.decode()} if is_text(item.data) else {"data_base64": in_base64(item.data)}
    return {name: value for name, value in said.items() if value is not None}


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def seen_on_the_wire(task: dict[str, Any]) -> Seen:
    if task.get("duplicate") and "group" not in task:
        return not_shown(**task)
    data = base64.b64decode(task["data_base64"]) if task["data"] is None else task["data"].encode()
    return Seen(
        id=task["id"],
        group=task["group"],
        available_at_ms=task["timespec"],
        owner=task["ownerid"],
        data=data,
        data_type=task.get("data_type", ""),
        error=task["error"],
        labels=task["labels"],
        priority=task["priority"],
        origin=task["origin"],
        claims=task["claims"],
        created_at_ms=task["created"],
        unique=task.get("unique", ""),
        batch=task.get("batch", 0),
        duplicate=task.get("duplicate", False),
    )


def not_shown(id: int | None, duplicate: bool, ending: str = "") -> Seen:
    """A duplicate that has ended, or that the client can't see: that is all there is in the answer."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("available_at_ms", "owner", "priority", "origin", "claims", "created_at_ms"), 0
    ) | dict.fromkeys(("group", "data_type", "error", "unique"), "")
    return Seen(id=id or 0, data=b"", labels={}, duplicate=duplicate, ending=ending, **nothing)


def step_on_the_wire(step: dict[str, Any]) -> Step:
    living = Step(id=step["id"], group=step["group"], owner=step["ownerid"], made_by_commit=step["made_by_commit"])
    end = step["ended"]
    if end is None:
        return living
    return replace(
        living,
        ending=Ending(end["how"]),
        ended_by=end["clientid"],
        ended_by_commit=end["commit"],
        successor=end["successor"],
        operator=end["operator"],
        reason=end["reason"],
    )


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


WAYS: dict[str, Any] = {
    "manager": Manager,
    "async": AsyncManager,
    "server": ManagerInServer,
    "rest-daphne": Rest,
    "client": ThroughClient,
}
if connection.vendor == "postgresql":
    WAYS["rest-uvicorn"] = RestOfServe
