"""BulkSet: change the same in every task that the refs match, chunk by chunk."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Self

from taskstore.errors import CommitRefused, StoreBusy
from taskstore.masstasker import masstasker_pb2 as pb
from taskstore.types.tasks import NOBODY, Change, Refusal

from ..access import audit
from ..access.policy import Action, actor_of
from ..bulk.chunks import Chunk, Planned
from ..core.actors import Actor
from ..core.operations import Commit
from ..core.validation import validate
from ..managers import TaskQuerySet, limits
from ..models import Task, Token
from .authentication import must_reach
from .refs import Refs, in_time, labels_in
from .requests import time_in
from .threads import beside_the_loop

SIZE = 50  # Tasks a commit: with 200 the claims of workers beside it take several times as long.
PATIENCE_S = 5.0  # For a chunk whose tasks workers change all the time.
IDS_IN_AUDIT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What becomes of each task; what is empty stays as it is."""

    group: str
    at_ms: int  # 0: it stays.
    error: str
    labels: Mapping[str, str]

    @classmethod
    def read(cls, prototype: pb.Task) -> Self:
        """Raises InvalidInput about what no task can have."""
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
        """A lease goes on as long as its time is in the future; whose it was can't commit any more."""
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
        """Whether it changes nothing."""
        return not self.in_words

    @property
    def in_words(self) -> dict[str, Any]:
        """For the audit."""
        told = {"to": self.group, "available": self.at_ms, "error": self.error, "labels": self.labels}
        return {name: value for name, value in told.items() if value}


async def bulk_set(request: pb.BulkSetRequest, token: Token) -> pb.BulkSetResponse:
    """With an empty prototype: count what matches, and change nothing.

    Raises InvalidInput, CallRefused, or what the verbs raise; some tasks may be changed then. CommitRefused, before
    anything is changed: a task that a ref names is not there.
    """
    refs, setting = Refs.read("ref", request.ref), Setting.read(request.prototype)
    must_reach(token, Action.OPERATE, {*refs.groups, *([setting.group] if setting.group else [])})
    has_gone = threading.Event()
    try:
        number = await beside_the_loop(_set_all, refs, setting, token, has_gone)
    except asyncio.CancelledError:
        has_gone.set()  # Nobody waits for the rest.
        raise
    return pb.BulkSetResponse(num_updated=number)


def _set_all(refs: Refs, setting: Setting, token: Token, has_gone: threading.Event) -> int:
    """Change what matches now. Returns how many tasks that were; the audit tells it also when it ends early."""
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
    """What is to be done, and the ids of the tasks that it has made."""

    refs: Refs
    setting: Setting
    actor: Actor
    done: list[int] = field(default_factory=list)

    def chains(self) -> dict[int, int]:
        """The origins of the tasks that match, each once; with the id of a task that was named, else 0.

        Raises CommitRefused when a task that was named is not there.
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
        """Change what of these chains still matches. Raises StoreBusy when workers change it all the time."""
        left, end = set(chains), time.monotonic() + PATIENCE_S
        while tasks := self._matching(left, [chains[origin] for origin in left]):
            try:
                for portion in Chunk(planned=[self._planned(task) for task in tasks]).portions():
                    self._commit(portion)
                    left.difference_update(planned.origin for planned in portion)
                break
            except CommitRefused:
                # A worker was faster: what it left has another id, and may still match.
                if time.monotonic() > end:
                    raise StoreBusy("workers keep changing these tasks: try again later") from None

    def _tasks(self) -> TaskQuerySet:
        return Task.objects.get_queryset().within(self.actor.scope)

    def _matching(self, origins: Collection[int], named: Collection[int]) -> list[Task]:
        matching = self.refs.described(self.actor.scope) | self._tasks().filter(id__in=named)
        return list(matching.of_chains(origins).beginnings(1))

    def _planned(self, task: Task) -> Planned:
        change = self.setting.change(task.id, task.available_at_ms, is_leased=task.leased)
        return Planned(origin=task.origin, task=task.id, step=change, size=task.data_size)  # type: ignore[attr-defined]

    def _commit(self, portion: Sequence[Planned]) -> None:
        changes = tuple(planned.step for planned in portion if isinstance(planned.step, Change))
        commit = Commit(owner=NOBODY, updates=changes, scope=self.actor.scope, operator=self.actor.operator())
        self.done += [task.id for task in Task.objects.perform(commit)]

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
