"""Keep websockets of console pages open until the program's input ends, and print a tally.

    python -m lab.chaos.open_pages '{"url": "http://127.0.0.1:8048", "cookie": "...", "silent": 6, "asking": 2}'

It runs in a separate process, like browsers. It prints an empty line as soon as all pages are open.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from lab.testing import PROJECT, CannotTry

from .client import GROUPS

ASKS_EVERY_S = 0.15  # The server closes a page that sends more than 100 requests in 10 s.
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """The number of open pages of each kind."""

    url: str
    cookie: str
    silent: int  # They subscribe and read nothing.
    asking: int = 0  # They request totals, with another filter each time.
    coming: int = 0  # They reconnect continuously.


@contextmanager
def open_pages(pages: Pages) -> Iterator[Counter[str]]:
    """Keep these pages open while the block runs. The tally of `Browser` is available afterwards."""
    tally: Counter[str] = Counter()
    words = [sys.executable, "-m", __name__, json.dumps(asdict(pages))]
    with subprocess.Popen(words, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if not cast(IO[bytes], process.stdout).readline():
            raise CannotTry("the pages could not be opened")
        try:
            yield tally
        finally:
            answer, _ = process.communicate(timeout=PATIENCE_S)
    tally.update(json.loads(answer))


class Browser:
    """All the pages. `tally`: the number of pages opened, answered, and closed by the server."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self.tally: Counter[str] = Counter()
        self._unopened = pages.silent + pages.asking + pages.coming
        self._all_open = asyncio.Event()

    async def show(self, is_over: asyncio.Event) -> None:
        pages = self._pages
        counts = {self._silent: pages.silent, self._asking: pages.asking, self._coming: pages.coming}
        async with asyncio.TaskGroup() as group:
            shown = [group.create_task(self._shown(kind)) for kind, count in counts.items() for _ in range(count)]
            await self._all_open.wait()
            print(flush=True)
            await is_over.wait()
            for task in shown:
                task.cancel()

    async def _shown(self, kind: Callable[[], Awaitable[None]]) -> None:
        try:
            await kind()
        except ConnectionClosed:
            self.tally[f"{kind.__name__.strip('_')} closed"] += 1

    async def _silent(self) -> None:
        async with self._page() as page:
            self._count(is_first=True)
            await self._say(page)
            await asyncio.Event().wait()

    async def _asking(self) -> None:
        async with self._page() as page:
            self._count(is_first=True)
            while True:
                await self._say(page, random.choice(["", "m", "mail", "none"]))  # noqa: S311 - it need not be secret.
                await page.recv()
                self.tally["answered"] += 1
                await asyncio.sleep(ASKS_EVERY_S)

    async def _coming(self) -> None:
        is_first = True
        while True:
            async with self._page() as page:
                self._count(is_first=is_first)
                is_first = False
                await self._say(page)

    def _count(self, *, is_first: bool) -> None:
        self.tally["opened"] += 1
        self._unopened -= is_first
        if not self._unopened:
            self._all_open.set()

    def _page(self) -> connect:
        address = f"ws{self._pages.url.removeprefix('http')}/console/live"
        headers = {"Origin": self._pages.url, "Cookie": self._pages.cookie}
        # No pings, because a page that reads nothing can't answer them.
        return connect(address, additional_headers=headers, proxy=None, ping_interval=None, open_timeout=PATIENCE_S)

    async def _say(self, page: ClientConnection, searched: str = "") -> None:
        shown = {"groups": GROUPS, "folders": ["mail/"], "filter": searched, "totals": True}
        await page.send(json.dumps({"type": "full", **shown}))


async def main() -> None:
    is_over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, is_over.set)
    browser = Browser(Pages(**json.loads(sys.argv[1])))
    await browser.show(is_over)
    print(json.dumps(browser.tally), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
