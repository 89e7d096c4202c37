"""BulkSet: make the same change to every task that the refs match, in chunks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Self

from taskstore.errors import CommitRefused, StoreBusy
from taskstore.masstasker import masstasker_pb2 as pb
from taskstore.types.tasks import NOBODY, Change, Refusal

from ..access import audit
from ..access.policy import Action, actor_of
from ..bulk.running import Chunk, Planned
from ..core.actors import Actor
from ..core.operations import Commit
from ..core.validation import validate
from ..managers import TaskQuerySet, limits
from ..models import Task, Token
from ..offload.threads import in_a_database_thread
from .authentication import must_reach
from .refs import Refs, in_time, labels_in
from .requests import time_in

SIZE = 50  # Tasks of a commit: with 200, workers' claims take several times as long.
PATIENCE_S = 5.0  # For a chunk whose tasks workers keep changing.
IDS_IN_AUDIT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The new values of each task; empty values leave the task as it is."""

    group: str
    at_ms: int  # 0: unchanged.
    error: str
    labels: Mapping[str, str]

    @classmethod
    def read(cls, prototype: pb.Task) -> Self:
        """Parse a prototype. Raises InvalidInput about invalid values."""
        has_time = prototype.HasField("not_before")
        setting = cls(
            group=prototype.group,
            at_ms=time_in(prototype.not_before, "prototype.not_before") if has_time else 0,
            error=prototype.error,
            labels=labels_in(prototype.labels),
        )
        validate(Commit(owner=NOBODY, updates=(setting.change(1, 0, is_leased=False),)), limits())
        return setting

    def change(self, task_id: int, available_at_ms: int, *, is_leased: bool) -> Change:
        """Return the change of a task. A lease lasts while its time is in the future, but its owner can't commit."""
        return Change(
            id=task_id,
            group=self.group or None,
            timespec_ms=self.at_ms or max(available_at_ms, 1),
            error=self.error or None,
            labels=self.labels or None,
            release=not is_leased,
        )

    @property
    def is_empty(self) -> bool:
        """Return whether it changes nothing."""
        return not self.in_words

    @property
    def in_words(self) -> dict[str, Any]:
        """Return the values for the audit log."""
        values = {"to": self.group, "available": self.at_ms, "error": self.error, "labels": self.labels}
        return {name: value for name, value in values.items() if value}


async def bulk_set(request: pb.BulkSetRequest, token: Token) -> pb.BulkSetResponse:
    """Change all matching tasks. An empty prototype only counts them.

    Raises InvalidInput, CallRefused, or an error of a commit; some tasks may be changed then. Raises CommitRefused
    before any change when a ref names a task that does not exist.
    """
    refs, setting = Refs.read("ref", request.ref), Setting.read(request.prototype)
    must_reach(token, Action.OPERATE, {*refs.groups, *([setting.group] if setting.group else [])})
    has_gone = threading.Event()
    try:
        number = await in_a_database_thread(_set_all, refs, setting, token, has_gone)
    except asyncio.CancelledError:
        has_gone.set()  # The client no longer waits for the rest.
        raise
    return pb.BulkSetResponse(num_updated=number)


def _set_all(refs: Refs, setting: Setting, token: Token, has_gone: threading.Event) -> int:
    """Change the tasks that match now. Returns their number, which the audit log records even after an early end."""
    began = time.monotonic()
    work = _Work(refs=refs, setting=setting, actor=actor_of(token))
    try:
        chains = work.chains()
        if setting.is_empty:
            return len(chains)
        origins = iter(chains)
        while (some := list(islice(origins, SIZE))) and not has_gone.is_set():
            work.set_some({origin: chains[origin] for origin in some})
    finally:
        if work.done:
            work.record(duration_ms=round((time.monotonic() - began) * 1_000))
    return len(work.done)


@dataclass(kw_only=True)
class _Work:
    """The change under way, with the ids of the new tasks."""

    refs: Refs
    setting: Setting
    actor: Actor
    done: list[int] = field(default_factory=list)

    def chains(self) -> dict[int, int]:
        """Return the origins of the matching tasks, each with the id if a ref names it, otherwise 0.

        Raises CommitRefused when a named task does not exist.
        """
        described = self.refs.described(self.actor.scope)
        with in_time(described.db):
            chains = dict.fromkeys(described.values_list("origin", flat=True), 0)
        for start in range(0, len(self.refs.ids), SIZE):
            named = self._tasks().filter(id__in=self.refs.ids[start : start + SIZE])
            chains |= dict(named.values_list("origin", "id"))
        if missing := set(self.refs.ids).difference(chains.values()):
            raise CommitRefused(Refusal(deletes=tuple(sorted(missing))))
        return chains

    def set_some(self, chains: Mapping[int, int]) -> None:
        """Change the tasks of these chains that still match. Raises StoreBusy when workers keep changing them."""
        left, end = set(chains), time.monotonic() + PATIENCE_S
        while tasks := self._matching(left, [chains[origin] for origin in left]):
            planned = [
                Planned(
                    origin=task.origin,
                    task=task.id,
                    step=self.setting.change(task.id, task.available_at_ms, is_leased=task.leased),
                    size=task.data_size,  # type: ignore[attr-defined]
                )
                for task in tasks
            ]
            try:
                for portion in Chunk(planned=planned).portions():
                    changes = tuple(planned.step for planned in portion if isinstance(planned.step, Change))
                    operator = self.actor.operator()
                    commit = Commit(owner=NOBODY, updates=changes, scope=self.actor.scope, operator=operator)
                    self.done += [task.id for task in Task.objects.perform(commit)]
                    left.difference_update(each.origin for each in portion)
                break
            except CommitRefused:
                # A worker was faster. The successor has another id, and may still match.
                if time.monotonic() > end:
                    raise StoreBusy("workers keep changing these tasks: try again later") from None

    def _tasks(self) -> TaskQuerySet:
        return Task.objects.get_queryset().within(self.actor.scope)

    def _matching(self, origins: Collection[int], named: Collection[int]) -> list[Task]:
        matching = self.refs.described(self.actor.scope) | self._tasks().filter(id__in=named)
        return list(matching.of_chains(origins).beginnings(1))

    def record(self, duration_ms: int) -> None:
        audit.record(
            self.actor,
            "edit",
            group=self.refs.only_group,
            selection=self.refs.in_words,
            done=len(self.done),
            details={**self.setting.in_words, "ids": self.done[:IDS_IN_AUDIT]},
            duration_ms=duration_ms,
        )
