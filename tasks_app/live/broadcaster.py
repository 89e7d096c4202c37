"""Read the counts once for all viewers of this process, while there are viewers.

Only groups on a page are read: there may be hundreds of thousands. Sums over many groups are read separately, the less
often the longer they take.

Each process reads the database, so many processes need no message broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from taskstore.types.progress import Progress

from ..control.progress import progress_of_origins
from ..models import Task
from ..writer.background import BackgroundLoop
from ..writer.totals import Part, Summary, numbers_of_each, summary
from . import messages
from .messages import Content, Snapshot, Watch
from .parts import marks_of

TICK_S = 0.25
SHORTEST_REST_S = 0.05  # While many different pages are opened.
HEARTBEAT_S = 1.0
FULL_EVERY_S = 1.0  # For a viewer.
# At most two thirds of the time are spent reading counts.
REST_PER_READING = 0.5
# And a fortieth of it reading sums.
REST_PER_SUM = 40.0
AT_ONCE, BETWEEN_S = 25, 0.005  # Messages of a portion, and the pause after it.
SUMS_S = 0.5  # The time for sums in a step; the rest follows in the next one, the oldest first.


NOTHING = Watch()


def read_snapshot(groups: Collection[str]) -> Snapshot:
    """Return the counts of these groups. Raises django.db.Error when the database can't be read."""
    read_at_s = time.monotonic()
    counts = numbers_of_each(sorted(groups)) if groups else {}
    return Snapshot(at_ms=Task.objects.now_ms(), read_at_s=read_at_s, groups=counts)


class Viewer:
    """A page, with the one message that waits to be sent to it.

    At most one message waits. A slow page gets all counts when it is ready again.
    """

    def __init__(self) -> None:
        self.topic: Topic | None = None
        self._text: str | None = None
        self._wants_full = False
        self._next_full_s = 0.0
        self._news = asyncio.Event()

    def offer(self, text: str) -> None:
        """Queue a change, or all counts when a message is waiting already."""
        if self._text is None and not self._wants_full:
            self._text = text
            self._news.set()
        else:
            self.want_full()

    def remind(self, text: str) -> None:
        """Queue a heartbeat unless a message is waiting."""
        if self._text is None:
            self._text = text
            self._news.set()

    def want_full(self) -> None:
        self._wants_full, self._text = True, None
        self._news.set()

    async def next(self) -> str:
        """Wait for the next message and return it."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._wants_full and self.topic and self.topic.full():
                # A page that asks more often gets all counts once, after a pause.
                await asyncio.sleep(self._next_full_s - time.monotonic())
                if self.topic and (text := self.topic.full()):
                    self._wants_full, self._text = False, None
                    self._next_full_s = time.monotonic() + FULL_EVERY_S
                    return text
            if self._text is not None:
                text, self._text = self._text, None
                return text


class Topic:
    """The content that some pages have in common. Its messages are made once for all of them."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.viewers: set[Viewer] = set()
        self._seq = 0
        self._content: Content = {}
        self._snapshot: Snapshot | None = None
        self._full: str | None = None  # Made on demand.

    def full(self) -> str | None:
        """Return all counts; None before the first reading, which is sent to all viewers."""
        if self._full is None and self._seq and self._snapshot:
            self._full = messages.full(self._seq, self._snapshot, self._content)
        return self._full

    async def publish(self, snapshot: Snapshot, content: Content) -> None:
        changed = messages.difference(self._content, content)
        is_first = self._snapshot is None
        self._content, self._snapshot, self._full = {**self._content, **content}, snapshot, None
        if is_first:
            self._seq = 1
            if self.watch != NOTHING:
                for viewer in self.viewers:
                    viewer.want_full()
        elif changed:
            self._seq += 1
            text = messages.delta(self._seq, snapshot, changed)
            await _one_by_one(self, lambda viewer: viewer.offer(text))

    async def beat(self, snapshot: Snapshot | None) -> None:
        seq = self._seq
        text = messages.heartbeat(seq, snapshot if seq else None)

        def remind(viewer: Viewer) -> None:
            if self._seq == seq:  # Otherwise a newer message was sent in between.
                viewer.remind(text)

        await _one_by_one(self, remind)


async def _one_by_one(topic: Topic, tell: Callable[[Viewer], None]) -> None:
    """Notify the viewers in portions: a thousand messages at once would block the event loop for 0.1 s."""
    for place, viewer in enumerate(list(topic.viewers), start=1):
        if viewer.topic is topic:
            tell(viewer)
        if place % AT_ONCE == 0:
            await asyncio.sleep(BETWEEN_S)


class Broadcaster:
    """Reads the counts every tick and sends the changes to the viewers.

    While the database can't be read, viewers keep their counts and see their age grow. They get
    new counts when it is back.
    """

    def __init__(
        self,
        read: Callable[[Collection[str]], Snapshot] = read_snapshot,
        add_up: Callable[[Part], Summary] = summary,
        read_progress: Callable[[Collection[int]], Mapping[int, Progress]] = progress_of_origins,
        read_shown: Callable[[Collection[str]], Mapping[str, str]] = marks_of,
    ) -> None:
        self._read = read
        self._add_up = add_up
        self._read_progress = read_progress
        self._read_shown = read_shown
        self._topics: dict[Watch, Topic] = {}
        self._loops: list[BackgroundLoop] = []
        self._snapshot: Snapshot | None = None
        self._sums: dict[Part, Summary] = {}
        self._summed_s: dict[Part, float] = {}

    def join(self, viewer: Viewer) -> None:
        """Add a viewer, who gets heartbeats. The first one starts the work."""
        self._put_in(viewer, NOTHING)
        if not self._loops:
            # In separate threads: pages that wait for the database must not delay the numbers.
            self._reading = BackgroundLoop(
                "live counts", self._tick, least_rest_s=SHORTEST_REST_S, keeps_connection=True
            )
            self._adding = BackgroundLoop("live sums", self._sum_up, keeps_connection=True)
            beating = BackgroundLoop("live heartbeats", self._beat, first_in_s=HEARTBEAT_S)
            self._loops = [self._reading, self._adding, beating]

    def show(self, viewer: Viewer, watch: Watch) -> None:
        """Send the watched counts to a viewer that has joined, all of them first."""
        self._put_in(viewer, watch)
        viewer.want_full()

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer. The last one ends the work. Leaving twice has no effect."""
        self._take_out(viewer)
        if self._topics:
            return
        for loop in self._loops:
            loop.end(amid_step=True)
        self._loops = []
        self._snapshot = None
        self._sums, self._summed_s = {}, {}

    @property
    def viewers(self) -> int:
        return sum(len(topic.viewers) for topic in self._topics.values())

    def _put_in(self, viewer: Viewer, watch: Watch) -> None:
        topic = self._topics.get(watch)
        if topic is None:
            topic = self._topics[watch] = Topic(watch)
            if self._loops:
                self._reading.wake()  # A new page waits for its first numbers.
        if viewer.topic is not topic:
            self._take_out(viewer)
            viewer.topic = topic
            topic.viewers.add(viewer)

    def _take_out(self, viewer: Viewer) -> None:
        topic, viewer.topic = viewer.topic, None
        if topic:
            topic.viewers.discard(viewer)
            if not topic.viewers:
                del self._topics[topic.watch]

    async def _tick(self) -> float:
        """Read and send the counts. Returns the seconds until the next reading."""
        started_s = time.monotonic()
        groups = set().union(*(watch.groups for watch in self._topics))
        origins = set().union(*(watch.progress for watch in self._topics))
        shown = set().union(*(watch.shown for watch in self._topics))
        snapshot = await self._reading.aside(self._read, groups)
        if origins:
            progress = await self._reading.aside(self._read_progress, origins)
            snapshot = replace(snapshot, progress=progress)
        if shown:
            snapshot = replace(snapshot, shown=await self._reading.aside(self._read_shown, shown))
        took_s = time.monotonic() - started_s
        self._snapshot = snapshot
        for watch, topic in list(self._topics.items()):
            # A page that was opened during the reading may need what was not read.
            if watch.groups <= groups and watch.progress <= origins and watch.shown <= shown:
                content = messages.content_of(watch, snapshot.groups, self._sums, snapshot.progress, snapshot.shown)
                await topic.publish(snapshot, content)
        return max(TICK_S - took_s, took_s * REST_PER_READING)

    async def _sum_up(self) -> float:
        """Read sums over many groups, which may take much longer than the counts of some."""
        started_s = time.monotonic()
        parts = {part for watch in self._topics for part in watch.parts}
        self._sums = {part: known for part, known in self._sums.items() if part in parts}
        self._summed_s = {part: at_s for part, at_s in self._summed_s.items() if part in parts}
        for part in sorted(parts, key=lambda part: self._summed_s.get(part, 0.0)):
            self._sums[part] = await self._adding.aside(self._add_up, part)
            self._summed_s[part] = time.monotonic()
            if time.monotonic() - started_s > SUMS_S:
                break
        took_s = time.monotonic() - started_s
        return max(TICK_S - took_s, took_s * REST_PER_SUM if took_s > TICK_S / 10 else 0)

    async def _beat(self) -> float:
        """Send a heartbeat with the age of the counts."""
        for topic in list(self._topics.values()):
            await topic.beat(self._snapshot)
        return HEARTBEAT_S


broadcaster = Broadcaster()
