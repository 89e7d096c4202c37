"""`client.batches`: tasks that end together, and what is added when they have (docs/batches.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self, cast

from msgspec import Struct

from .. import endpoints
from ..types.batches import (
    LISTS,
    PLANS,
    Batch,
    BatchMade,
    BatchRequest,
    Plan,
    Planned,
    PlanOnTheWire,
    Then,
    plan_of,
    plans_in,
)
from ..types.job_record import JobCall
from ..types.requests import ReasonById
from ..types.tasks import NewTask, Task
from .calls import AnyPart, AsyncPart, Call, Part, calls, decoder, verb, verb_or_none
from .errors import BatchFailed, NotFound
from .jobs import pauses, task_of
from .verbs import CommitOnTheWire, add_on_the_wire, committing, outcome_in, tasks_of

AT_ONCE, BYTES_AT_ONCE = 1_000, 4 * 2**20  # Of the tasks of a batch that are sent together.

Adds = NewTask | JobCall


Later = Planned | JobCall | Iterable[Adds]


class WithBatch(Struct, frozen=True):
    batch: Batch


def made_in(answer: bytes) -> BatchMade:
    """Return a new batch with its tasks. Raises CommitRefused."""
    tasks = tasks_of(outcome_in(answer))
    return BatchMade(batch=decoder(WithBatch)(answer).batch, tasks=tuple(tasks))


def wired(later: Later, name: str = "then") -> Then:
    """Return what programs give as a plan as requests have it. Raises TypeError, which names the part that is none."""
    if isinstance(later, JobCall):
        later = [later]
    if isinstance(later, Iterable) and not isinstance(later, str | bytes):
        later = [as_task(place, add) for place, add in enumerate(later)]
    plan = plan_of(cast(Planned, later), name)
    if plan is None:
        return None
    return _on_the_wire(plan) if plan.is_batch else tuple(map(add_on_the_wire, plan.adds))


def _on_the_wire(plan: Plan) -> PlanOnTheWire:
    parts: Any = {name: wired(getattr(plan, name)) for name in PLANS}
    parts |= {name: tuple(map(_on_the_wire, getattr(plan, name))) for name in LISTS}
    return PlanOnTheWire(adds=tuple(map(add_on_the_wire, plan.adds)), **parts)


def as_task(place: int, add: Adds) -> NewTask:
    return task_of(place, add) if isinstance(add, JobCall) else add


class BatchVerbs(AnyPart):
    list = verb(endpoints.BATCHES)
    get = verb_or_none(endpoints.BATCH)
    release = verb_or_none(endpoints.RELEASE_BATCH)
    complete = verb_or_none(endpoints.COMPLETE_BATCH)
    delete = verb_or_none(endpoints.DELETE_BATCH)

    @calls
    def create(
        self,
        name: str = "",
        adds: Iterable[Adds] = (),
        *,
        then: Later = None,
        on_failure: Later = None,
        batches: Iterable[Plan] = (),
        steps: Iterable[Later] = (),
        parent: int = 0,
        hold: bool = False,
        failed_ends: bool = False,
        key: str = "",
    ) -> Call[BatchMade]:
        """Create a batch with its first tasks, or jobs. Returns the batch and its tasks.

        `then`: what to add once when all its tasks have succeeded: tasks or jobs, or a Plan, which nests. `on_failure`:
        what to add once when the first has failed. `batches`: plans of batches within it, which begin at once; it waits
        for them. `steps`: what to add within it, one after the other, each when all before it has succeeded.
        `parent`: the id of an open batch that stays open until this one closes. `hold`: it stays open until `release`.
        `failed_ends`: what has failed counts as succeeded. `key`: as of `commit`. Raises CommitRefused if the parent
        is not open; InvalidInput.
        """
        options: Any = {"parent": parent, "hold": hold, "failed_ends": failed_ends, "batches": batches, "steps": steps}
        return creation(self, name, adds, then=then, on_failure=on_failure, key=key, **options)


def creation(
    sender: Any,
    name: str,
    adds: Iterable[Adds],
    *,
    then: Later = None,
    on_failure: Later = None,
    batches: Iterable[Plan] = (),
    steps: Iterable[Later] = (),
    key: str = "",
    **options: Any,
) -> Call[BatchMade]:
    """Return the call that creates a batch; see BatchVerbs.create."""
    asked = BatchRequest(
        clientid=sender.id,
        name=name,
        adds=tuple(add_on_the_wire(as_task(place, add)) for place, add in enumerate(adds)),
        then=wired(then),
        on_failure=wired(on_failure, "on_failure"),
        batches=tuple(map(_on_the_wire, plans_in(batches, "batches"))),
        steps=tuple(filter(None, (wired(step, f"steps[{place}]") for place, step in enumerate(steps)))),
        **options,
    )
    return Call.of(endpoints.CREATE_BATCH, asked, read=made_in, key=key)


class Batches(Part, BatchVerbs):
    """The batches of the store."""

    def wait(self, id: int, timeout_s: float | None = None, *, raises: bool = True) -> Batch:
        """Wait until the batch has closed and return it. `timeout_s`: None waits without limit.

        Raises BatchFailed if it has not succeeded, and as soon as it waits for nothing but failed tasks, unless
        `raises` is False; TimeoutError; NotFound if there is no such batch.
        """
        for pause_s in pauses(timeout_s):
            if batch := _over(self.get(id), id, raises):
                return batch
            time.sleep(pause_s)
        raise TimeoutError(f"batch {id} has not closed yet")


class AsyncBatches(AsyncPart, BatchVerbs):
    """The batches of the store, for `AsyncClient`."""

    async def wait(self, id: int, timeout_s: float | None = None, *, raises: bool = True) -> Batch:
        """Wait until the batch has closed and return it, like `Batches.wait`."""
        for pause_s in pauses(timeout_s):
            if batch := _over(await self.get(id), id, raises):
                return batch
            await asyncio.sleep(pause_s)
        raise TimeoutError(f"batch {id} has not closed yet")


def _over(batch: Batch | None, id: int, raises: bool) -> Batch | None:
    """Return the batch if nothing more will happen in it by itself."""
    if batch is None:
        raise NotFound(f"No batch {id}.")
    if batch.closed_at_ms is None and not batch.is_stuck:
        return None
    if raises and batch.state != "succeeded":
        raise BatchFailed(batch)
    return batch


class Collected:
    """The tasks of a batch that is being made: they are added when the `with` block ends.

    Many are added in portions, to a batch that is held until the end. If the block raises after the first portion, the
    batch stays held: release or delete it.
    """

    def __init__(self, client: Any, name: str, options: dict[str, Any]) -> None:
        self._client, self._name, self._options = client, name, options
        self._adds: list[NewTask] = []
        self._size = 0
        self._is_to_release = False
        self.id = 0  # The id of the batch; 0 until it is created.
        self.tasks: list[Task] = []  # Those that have been added.

    def _collect(self, group: str | Adds, data: bytes | str, fields: dict[str, Any]) -> bool:
        """Keep a task. Returns whether there are enough for a portion."""
        if isinstance(group, str):
            group = NewTask(group=group, data=data.encode() if isinstance(data, str) else data, **fields)
        new = as_task(len(self._adds), group)
        self._adds.append(new)
        self._size += len(new.data)
        return len(self._adds) >= AT_ONCE or self._size >= BYTES_AT_ONCE

    def _calls(self, *, is_last: bool) -> Generator[Call[Any], Any, None]:
        """Yield the calls that add what was collected, and receive their results."""
        adds, self._adds, self._size = self._adds, [], 0
        if not self.id:
            hold = self._options.pop("hold", False)
            self._is_to_release = not (is_last or hold)
            made = yield creation(self._client, self._name, adds, hold=hold or not is_last, **self._options)
            self.id = made.batch.id
            self.tasks += made.tasks
        elif adds:
            members = [replace(add, batch=self.id) for add in adds]
            self.tasks += yield committing(CommitOnTheWire(self._client.id, members), list)
        if is_last and self._is_to_release:
            yield Call.of(endpoints.RELEASE_BATCH, ReasonById(self.id))


class NewBatch(Collected):
    """For `Client`; see Collected."""

    def add(self, group: str | Adds, data: bytes | str = b"", **fields: Any) -> None:
        """Add a task as `Client.add` does, or a NewTask, or a job, such as `resize.call(1)`."""
        if self._collect(group, data, fields):
            self._send(is_last=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._send(is_last=True)

    def _send(self, *, is_last: bool) -> None:
        calls, result = self._calls(is_last=is_last), None
        with suppress(StopIteration):
            while True:
                result = self._client.send(calls.send(result))


class AsyncNewBatch(Collected):
    """For `AsyncClient`; see Collected."""

    async def add(self, group: str | Adds, data: bytes | str = b"", **fields: Any) -> None:
        """Add a task, as `NewBatch.add` does."""
        if self._collect(group, data, fields):
            await self._send(is_last=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self._send(is_last=True)

    async def _send(self, *, is_last: bool) -> None:
        calls, result = self._calls(is_last=is_last), None
        with suppress(StopIteration):
            while True:
                result = await self._client.send(calls.send(result))
