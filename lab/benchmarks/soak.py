"""A steady load for hours, also while somebody holds a transaction open and after it: what grows, what slows down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from itertools import count
from statistics import median

import psycopg

from .clients.client import ADDER, run
from .clients.rest import RestClient
from .figures import percentile
from .pace import Load
from .places import Place, Storage

CLIENTS = 32
STEP_S = 0.1  # Between two commits that add tasks.
LEAST_READY, MOST_READY = 2_000, 20_000  # Tasks: while there are more, hardly any are added.
MINUTE_S = 60.0

SIZES = {
    "dead_rows": "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'tasks_app_task'",
    "table_mb": "SELECT pg_table_size('tasks_app_task') >> 20",
    "index_mb": "SELECT pg_indexes_size('tasks_app_task') >> 20",
    "history_mb": """
        SELECT sum(pg_total_relation_size(inhrelid)) / 1048576 FROM pg_inherits
        WHERE inhparent = 'tasks_app_endedtask'::regclass
    """,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What a minute came to, and what there was at its end."""

    minute: int
    is_held: bool  # Whether somebody held a transaction open.
    cycles: float  # A second.
    p50_ms: float  # From when a claim was due to its answer.
    p99_ms: float
    dead_rows: int
    table_mb: int
    index_mb: int
    history_mb: int


class Soak:
    """Clients that claim and delete tasks at a rate, and one that adds as many."""

    def __init__(self, place: Place, rate: int, say: Callable[[Minute], None]) -> None:
        assert place.server  # noqa: S101
        where = {"database": place.storage.url, "url": place.server.url, "token": place.server.token}
        self._client = RestClient(Load(clients=CLIENTS, rate=rate), where)
        self._storage, self._rate, self._say = place.storage, rate, say
        self._claims_ms: list[float] = []
        self._ready = self._done = 0

    async def go_on(self, minutes: int, held_for: int, after: int) -> list[Minute]:
        """`held_for`: so many more minutes with that transaction; `after`: after its end."""
        await self._client.open([ADDER, *range(1, CLIENTS + 1)])
        await self._client.put(LEAST_READY)
        self._ready = LEAST_READY
        self._began_s = time.monotonic()
        at_work = [asyncio.ensure_future(self._add()), *map(asyncio.ensure_future, map(self._work, range(CLIENTS)))]
        found = []
        numbers = count()
        for how_many, is_held in ((minutes, False), (held_for, True), (after, False)):
            with held_open(self._storage) if is_held else nullcontext():
                for _ in range(how_many):
                    found.append(await self._minute(next(numbers), at_work, is_held=is_held))
                    self._say(found[-1])
        for each in at_work:
            each.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)
        await self._client.close()
        return found

    async def _minute(self, number: int, at_work: Sequence[asyncio.Future[None]], *, is_held: bool) -> Minute:
        self._claims_ms, self._done, began_s = [], 0, time.monotonic()
        ended, _ = await asyncio.wait(at_work, timeout=MINUTE_S, return_when=asyncio.FIRST_COMPLETED)
        for each in ended:
            await each  # It never ends but by a failure.
        cycles, claims_ms = self._done / (time.monotonic() - began_s), self._claims_ms
        sizes = await asyncio.to_thread(lambda: {name: self._storage.number(sql) for name, sql in SIZES.items()})
        return Minute(
            minute=number,
            is_held=is_held,
            cycles=cycles,
            p50_ms=percentile(claims_ms, 50),
            p99_ms=percentile(claims_ms, 99),
            **sizes,
        )

    async def _add(self) -> None:
        while True:
            await asyncio.sleep(STEP_S)
            tasks = int(self._rate * STEP_S * (2 if self._ready < LEAST_READY else 1))
            tasks = tasks if self._ready < MOST_READY else 1  # Not none: the server would close the connection.
            await self._client.put(tasks)
            self._ready += tasks

    async def _work(self, place: int) -> None:
        """A client, whose turn comes again and again. One that is late goes on at once, for up to a second."""
        due_s = self._began_s + place / self._rate
        while True:
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            ids = await self._client.claim(place + 1)
            self._claims_ms.append((time.monotonic() - due_s) * 1_000)
            if ids:
                await self._client.finish(place + 1, ids)
                self._ready -= len(ids)
                self._done += len(ids)
            due_s = max(due_s + CLIENTS / self._rate, time.monotonic() - 1)


@contextmanager
def held_open(storage: Storage) -> Iterator[None]:
    with psycopg.connect(storage.url) as somebody:
        somebody.execute("SELECT pg_current_xact_id()")  # From now on no row that is deleted may be removed.
        yield
        somebody.rollback()


def soak(
    place: Place, rate: int, minutes: int, held_for: int, after: int, say: Callable[[Minute], None]
) -> list[Minute]:
    return run(Soak(place, rate, say).go_on(minutes, held_for, after))


# ---- The report


def report(found: Sequence[Minute], rate: int) -> str:
    """Return a table with some of the minutes, and what the rates come to."""
    names = [field.name for field in fields(Minute)]
    step = max(1, len(found) // 24)
    shown = [
        each
        for number, each in enumerate(found)
        if not number % step or each is found[-1] or each.is_held != found[number + 1].is_held
    ]
    rows = [f"| {' | '.join(_shown(getattr(each, name)) for name in names)} |" for each in shown]
    lines = [f"| {' | '.join(names)} |", f"|{'--:|' * len(names)}", *rows, ""]
    before = [each for each in found if not each.is_held and each.minute < _first_held(found)]
    held = [each for each in found if each.is_held]
    after = [each for each in found if not each.is_held and each.minute > _first_held(found)]
    for title, part in (("before", before), ("while held", held), ("after", after)):
        if part:
            cycles, p99_ms = median(each.cycles for each in part), median(each.p99_ms for each in part)
            lines.append(f"{title}: {cycles / rate:.2f} of the rate, p99 {p99_ms:.1f} ms (medians of its minutes)")
    return "\n".join(lines)


def _first_held(found: Sequence[Minute]) -> int:
    return next((each.minute for each in found if each.is_held), len(found))


def _shown(value: float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"{value:,.1f}".replace(",", " ") if isinstance(value, float) else f"{value:,}".replace(",", " ")


PANELS = {"cycles": "cycles per second", "p99_ms": "claim p99, ms", "dead_rows": "dead rows", "index_mb": "indexes, MB"}
WIDTH, HEIGHT, LEFT, TOP = 720, 110, 60, 24


def plot(found: Sequence[Minute]) -> str:
    """Return a picture (SVG): a panel for each of PANELS, by the minute; shaded while a transaction was held open."""
    parts = []
    for number, (name, title) in enumerate(PANELS.items()):
        top = number * (HEIGHT + TOP) + TOP
        values = [getattr(each, name) for each in found]
        most = max(*values, 1)
        wide = WIDTH / max(len(found) - 1, 1)
        points = " ".join(f"{LEFT + i * wide:.1f},{top + HEIGHT * (1 - v / most):.1f}" for i, v in enumerate(values))
        if held := [i for i, each in enumerate(found) if each.is_held]:
            width = (held[-1] - held[0]) * wide
            parts.append(f'<rect x="{LEFT + held[0] * wide:.1f}" y="{top}" width="{width:.1f}" height="{HEIGHT}"/>')
        parts += [
            f'<text x="{LEFT}" y="{top - 6}">{title}</text>',
            f'<text class="end" x="{LEFT - 6}" y="{top + 10}">{_shown(most)}</text>',
            f'<text class="end" x="{LEFT - 6}" y="{top + HEIGHT}">0</text>',
            f'<path d="M{LEFT},{top}V{top + HEIGHT}H{LEFT + WIDTH}"/><polyline points="{points}"/>',
        ]
    style = (
        "text{font:12px sans-serif;fill:#475467}.end{text-anchor:end}rect{fill:#fedf89;opacity:.5}"
        "path{fill:none;stroke:#98a2b3}polyline{fill:none;stroke:#1570ef;stroke-width:1.5}"
    )
    size = f'viewBox="0 0 {LEFT + WIDTH + 20} {len(PANELS) * (HEIGHT + TOP) + TOP}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>'
    return "\n".join([head, *parts, "</svg>", ""])
