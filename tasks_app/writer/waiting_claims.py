"""Claims that wait until a task becomes available, and operations on their way through the writer."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count

from msgspec.structs import replace

from taskstore.errors import StoreUnavailable

from ..core.operations import Claim, Operation, Query, Supply, TaskRecord


@dataclass(slots=True, eq=False)
class Asked(ABC):
    """An operation on its way through the writer, which calls `succeed` or `fail` once, on its loop."""

    operation: Operation
    arrived_s: float = field(default_factory=time.monotonic, kw_only=True)
    tries: int = field(default=0, kw_only=True)  # How often nothing could be said yet.

    @property
    def size(self) -> int:
        """Roughly its bytes."""
        return self.operation.data_bytes

    @property
    def wait_s(self) -> float:
        """How long it wants to wait until there is something to claim."""
        return self.operation.wait_ms / 1000 if isinstance(self.operation, Claim) else 0

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.arrived_s

    @property
    @abstractmethod
    def is_needless(self) -> bool:
        """Whether nobody wants it any more. Asked before it begins."""

    @property
    @abstractmethod
    def has_lost_client(self) -> bool:
        """Whether nobody can receive what it took. Asked once it is done."""

    def prepare(self, tasks: list[TaskRecord]) -> None:  # noqa: B027 - Most have nothing to prepare.
        """Get the answer ready while its commit is on its way. `succeed` follows with the same list, or else `fail`."""

    @abstractmethod
    def wait(self, ended: Callable[[], None]) -> None:
        """Begin to wait. Calls `ended` once it has its answer, or nobody wants one any more."""

    @abstractmethod
    def succeed(self, tasks: list[TaskRecord]) -> None: ...

    @abstractmethod
    def fail(self, error: Exception) -> None: ...


@dataclass(slots=True, eq=False)
class Awaited(Asked):
    """An operation whose answer is awaited as a future."""

    answer: asyncio.Future[list[TaskRecord]]

    @property
    def is_needless(self) -> bool:
        return self.answer.done()

    @property
    def has_lost_client(self) -> bool:
        return self.answer.cancelled()

    def wait(self, ended: Callable[[], None]) -> None:
        self.answer.add_done_callback(lambda _: ended())

    def succeed(self, tasks: list[TaskRecord]) -> None:
        if not self.answer.done():
            self.answer.set_result(tasks)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


LOOK_EVERY_S = 1.0  # Always: whatever else tells that there is something may fail.


class Line:
    """Those who wait for a group, by number, the lowest first."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._by_number: dict[int, Asked] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def put(self, number: int, asked: Asked) -> None:
        insort(self._numbers, number)
        self._by_number[number] = asked

    def drop(self, number: int) -> None:
        if self._by_number.pop(number, None):
            del self._numbers[bisect_left(self._numbers, number)]

    def first(self, count: int) -> list[Asked]:
        return [self._by_number[number] for number in self._numbers[:count]]


NOBODY_WAITS = Line()


class WaitingClaims:
    def __init__(self, try_again: Callable[[Asked], None]) -> None:
        self._try_again = try_again
        self._by_group: dict[str, Line] = defaultdict(Line)
        # By group, too: who only reads leaves it to all others.
        self._readers: dict[str, Line] = defaultdict(Line)
        self._by_depended: dict[int, set[Asked]] = defaultdict(set)
        self._numbers: dict[Asked, int] = {}  # The places in line, which are kept by those that are woken for nothing.
        self._next_number = count()
        self._limits: dict[Asked, int] = {}  # What they asked for, of those that were woken for less.
        self._must_look = asyncio.Event()
        self._next_look: asyncio.TimerHandle | None = None
        self.problem: StoreUnavailable | None = None  # Why the last look found nothing.
        self._has_ended = False

    def takes(self, asked: Asked) -> bool:
        """Keep a claim that found nothing, if it wants to wait (longer)."""
        left_s = asked.wait_s - asked.age_s
        if left_s <= 0 or self._has_ended:
            return False
        if isinstance(asked.operation, Query) and asked.operation.at_ms:
            # There was nothing at that moment. From here on time passes, and that is the store's.
            asked.operation = replace(asked.operation, at_ms=0)
        if isinstance(asked.operation, Claim) and (limit := self._limits.pop(asked, None)):
            asked.operation = replace(asked.operation, limit=limit)
        is_new = asked not in self._numbers
        if is_new:
            self._numbers[asked] = next(self._next_number)
        for group in _groups_of(asked):
            self._put(asked, group)
        for task_id in asked.operation.depends:
            self._by_depended[task_id].add(asked)
        if is_new:
            timer = asyncio.get_running_loop().call_later(left_s, self._end, asked)
            asked.wait(partial(self._forget, asked, timer))
        return True

    def note(self, supply: Supply) -> None:
        """Wake as many as there is for, the longest waiting first."""
        for group, in_ms in supply.next_in_ms.items():
            if group in self._by_group or group in self._readers:
                self._look_within(max(in_ms, 1) / 1000)
        for asked in self.leave(supply.available):
            self._try_again(asked)
        for asked in self._all() if supply.late else ():
            if isinstance(asked.operation, Claim) and asked.operation.owner in supply.late:
                asked.succeed([])  # A program that is stopped would only hold what it gets.
        for task_id in supply.gone & self._by_depended.keys() if self._by_depended else ():
            for asked in list(self._by_depended[task_id]):
                self._take_out(asked)
                self._try_again(asked)

    def leave(self, available: Mapping[str, int], most: int | None = None) -> list[Asked]:
        """Take out as many as there are tasks for, the longest waiting first, and at most so many in all."""
        left: list[Asked] = []
        for group, tasks in available.items():
            line, readers = self._by_group.get(group, NOBODY_WAITS), self._readers.get(group, NOBODY_WAITS)
            # So that none gets all while others wait, and one that gets all need not look whether there is more.
            share = -(-tasks // max(len(line), 1))
            for asked in [*readers.first(len(readers)), *line.first(tasks)]:
                if len(left) == most:
                    return left
                self._take_out(asked)
                self._ask_for(asked, share)
                left.append(asked)
        return left

    async def time_to_look(self) -> None:
        """Return when a look at the database may find something for somebody."""
        self._look_within(LOOK_EVERY_S)
        await self._must_look.wait()
        self._must_look.clear()
        self._forget_next_look()

    def look_into(self, groups: Iterable[str] | None) -> None:
        """Something has happened in these groups (None: in any) that no commit of this process tells."""
        if groups is None or any(group in self._by_group or group in self._readers for group in groups):
            self._must_look.set()

    @property
    def is_anybody(self) -> bool:
        return bool(self._by_group or self._readers)

    def groups(self) -> list[str]:
        """The groups that somebody waits for."""
        return list({**self._by_group, **self._readers} if self._readers else self._by_group)

    def owners(self) -> set[int]:
        return {asked.operation.owner for asked in self._all() if isinstance(asked.operation, Claim)}

    def depends(self) -> set[int]:
        return set(self._by_depended)

    def give_up(self) -> None:
        """The server stops: everybody finds nothing."""
        self._has_ended = True
        for asked in self._all():
            asked.succeed([])

    def __len__(self) -> int:
        return len(self._all())

    def _end(self, asked: Asked) -> None:
        """Its time is over. What is being tried just now may have taken something: it ends with what comes of that."""
        if self._is_in_line(asked):
            if self.problem:
                asked.fail(self.problem)  # Nobody knows whether there is something.
            else:
                asked.succeed([])

    def _is_in_line(self, asked: Asked) -> bool:
        lines, number = self._lines_of(asked), self._numbers[asked]
        return any(number in lines.get(group, NOBODY_WAITS) for group in _groups_of(asked))

    def _all(self) -> set[Asked]:
        lines = chain(self._by_group.values(), self._readers.values())
        return {asked for line in lines for asked in line.first(len(line))}

    def _look_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if not self._next_look or loop.time() + seconds < self._next_look.when():
            self._forget_next_look()
            self._next_look = loop.call_later(seconds, self._must_look.set)

    def _forget_next_look(self) -> None:
        if self._next_look:
            self._next_look.cancel()
            self._next_look = None

    def _put(self, asked: Asked, group: str) -> None:
        lines = self._lines_of(asked)
        if group not in lines:
            self._must_look.set()
        lines[group].put(self._numbers[asked], asked)

    def _lines_of(self, asked: Asked) -> dict[str, Line]:
        """By group the line in which it waits, if it does."""
        only_reads = isinstance(asked.operation, Query) and asked.operation.only_reads
        return self._readers if only_reads else self._by_group

    def _ask_for(self, asked: Asked, most: int) -> None:
        if isinstance(asked.operation, Claim) and most < asked.operation.limit:
            self._limits.setdefault(asked, asked.operation.limit)
            asked.operation = replace(asked.operation, limit=most)

    def _take_out(self, asked: Asked) -> None:
        lines = self._lines_of(asked)
        for group in _groups_of(asked):
            line = lines.get(group)
            if line is not None:
                line.drop(self._numbers[asked])
                if not line:
                    del lines[group]
        for task_id in asked.operation.depends:
            dependants = self._by_depended.get(task_id)
            if dependants is not None:
                dependants.discard(asked)
                if not dependants:
                    del self._by_depended[task_id]

    def _forget(self, asked: Asked, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._take_out(asked)
        self._limits.pop(asked, None)
        self._numbers.pop(asked, None)


def _groups_of(asked: Asked) -> tuple[str, ...]:
    return asked.operation.groups if isinstance(asked.operation, Claim) else ()
