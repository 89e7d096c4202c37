"""One reader of the counts for all viewers of this process, at work only while there are viewers.

It reads the groups that are on a page, and no others: there may be hundreds of thousands. What has to be added up over
many groups is read beside that, the less often the longer it takes.

The truth is in the database, so that many processes need no message broker between them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

from ..models import Task
from ..reading.counts import counts_of_each
from ..writer.background import BackgroundLoop
from ..writer.totals import Part, Summary, summary
from . import messages
from .messages import Content, Snapshot, Watch

TICK_S = 0.25
SHORTEST_REST_S = 0.05  # When pages are opened, each of which shows something else.
HEARTBEAT_S = 1.0
FULL_EVERY_S = 1.0  # For a viewer.
# At most two thirds of the time are spent reading: where that takes long it is done less often.
REST_PER_READING = 0.5
# And a fortieth of it adding up: the machine has better things to do.
REST_PER_SUM = 40.0
AT_ONCE, BETWEEN_S = 25, 0.005  # Messages, and the seconds in which others have their turn.
SUMS_S = 0.5  # So much is added up at once; what is left comes after the rest, the oldest first.


NOTHING = Watch()


def read_snapshot(groups: Collection[str]) -> Snapshot:
    """The counts of these groups. Raises django.db.Error when the database can't be read."""
    read_at_s = time.monotonic()
    counts = counts_of_each(sorted(groups)) if groups else {}
    return Snapshot(at_ms=Task.objects.now_ms(), read_at_s=read_at_s, groups=counts)


class Viewer:
    """A page: what it shows, and the one message that is still to be sent to it.

    More than one is never kept. A page that does not take what there is gets all counts anew once it does.
    """

    def __init__(self) -> None:
        self.topic: Topic | None = None
        self._text: str | None = None
        self._wants_full = False
        self._next_full_s = 0.0
        self._news = asyncio.Event()

    def offer(self, text: str) -> None:
        """Something has changed."""
        if self._text is None and not self._wants_full:
            self._text = text
            self._news.set()
        else:
            self.want_full()

    def remind(self, text: str) -> None:
        """Nothing has changed: it matters only to a page for which there is nothing else."""
        if self._text is None:
            self._text = text
            self._news.set()

    def want_full(self) -> None:
        self._wants_full, self._text = True, None
        self._news.set()

    async def next(self) -> str:
        """The next message, as soon as there is one."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._wants_full and self.topic and self.topic.full():
                # Who asks more often gets all counts once, after a rest.
                await asyncio.sleep(self._next_full_s - time.monotonic())
                if self.topic and (text := self.topic.full()):
                    self._wants_full, self._text = False, None
                    self._next_full_s = time.monotonic() + FULL_EVERY_S
                    return text
            if self._text is not None:
                text, self._text = self._text, None
                return text


class Topic:
    """What some pages show alike. Its messages are made once for all of them."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.viewers: set[Viewer] = set()
        self._seq = 0
        self._content: Content = {}
        self._snapshot: Snapshot | None = None
        self._full: str | None = None  # Made when somebody asks.

    def full(self) -> str | None:
        """All counts; None before the first reading: then they come by themselves."""
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
            if self._seq == seq:  # Else it has just been told more than this.
                viewer.remind(text)

        await _one_by_one(self, remind)


async def _one_by_one(topic: Topic, tell: Callable[[Viewer], None]) -> None:
    """Some at a time: a thousand messages keep the event loop busy for a tenth of a second, and commits waiting."""
    for place, viewer in enumerate(list(topic.viewers), start=1):
        if viewer.topic is topic:
            tell(viewer)
        if place % AT_ONCE == 0:
            await asyncio.sleep(BETWEEN_S)


class Broadcaster:
    """Reads the counts every tick and tells the viewers what has changed.

    When the database can't be read the viewers keep what they have, see it grow old, and
    get new counts by themselves when it is back.
    """

    def __init__(
        self,
        read: Callable[[Collection[str]], Snapshot] = read_snapshot,
        add_up: Callable[[Part], Summary] = summary,
    ) -> None:
        self._read = read
        self._add_up = add_up
        self._topics: dict[Watch, Topic] = {}
        self._loops: list[BackgroundLoop] = []
        self._snapshot: Snapshot | None = None
        self._sums: dict[Part, Summary] = {}
        self._summed_s: dict[Part, float] = {}

    def join(self, viewer: Viewer) -> None:
        """Count a viewer in, who hears that the server is there. The first one starts the work."""
        self._put_in(viewer, NOTHING)
        if not self._loops:
            # In threads of their own: pages that wait for the database must not hold up the numbers.
            self._reading = BackgroundLoop(
                "live counts", self._tick, least_rest_s=SHORTEST_REST_S, keeps_connection=True
            )
            self._adding = BackgroundLoop("live sums", self._sum_up, keeps_connection=True)
            beating = BackgroundLoop("live heartbeats", self._beat, first_in_s=HEARTBEAT_S)
            self._loops = [self._reading, self._adding, beating]

    def show(self, viewer: Viewer, watch: Watch) -> None:
        """From now on the viewer, who has joined, gets what this is about: all of it first."""
        self._put_in(viewer, watch)
        viewer.want_full()

    def leave(self, viewer: Viewer) -> None:
        """Count a viewer out; with the last one the work ends. Leaving twice does no harm."""
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
                self._reading.wake()  # Who opens a page waits for its first numbers.
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
        """Read and send; returns the seconds to rest before the next reading."""
        started_s = time.monotonic()
        groups = set().union(*(watch.groups for watch in self._topics))
        snapshot = await self._reading.aside(self._read, groups)
        took_s = time.monotonic() - started_s
        self._snapshot = snapshot
        for watch, topic in list(self._topics.items()):
            # A page that has come meanwhile shows groups that were not read.
            if watch.groups <= groups:
                await topic.publish(snapshot, messages.content_of(watch, snapshot.groups, self._sums))
        return max(TICK_S - took_s, took_s * REST_PER_READING)

    async def _sum_up(self) -> float:
        """Beside the groups: what is added up over many of them may take much longer."""
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
        """Say regularly that the server is there, and how old the counts are."""
        for topic in list(self._topics.values()):
            await topic.beat(self._snapshot)
        return HEARTBEAT_S


broadcaster = Broadcaster()
