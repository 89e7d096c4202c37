"""The console in a browser: when a page is first painted, and what becomes of it while the store changes."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lab.testing import CannotTry
from lab.testing.debian import OPTIONS, chromium

from .. import CannotMeasure
from ..figures import Figures, percentile
from ..measuring import Entry
from ..pace import Pace
from ..places import Place
from .visitor import GROUPS, Visitor, visitor_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

ADDED_TO = "bench/seen"
TICKS_PER_S = 10
WIDTH, HEIGHT = 1366, 900
HIGH_PRIORITY = -10  # As `nice` counts.
PAINTS = 5
SHOWN_WITHIN_MS = 10_000
LIVE = "[data-live-status]:has-text('live')"

# When the page says the number; by the machine's clock, which is ours too.
WHEN_IT_SAYS = """([group, number, patienceMs]) => new Promise((done, fail) => {
  const row = document.querySelector(`tr[data-live-group="${group}"] [data-live-count="ready"]`);
  const look = () => row.textContent.replace(/\\D/g, "") === String(number) && (watch.disconnect(), done(Date.now()));
  const watch = new MutationObserver(look);
  watch.observe(row, { subtree: true, childList: true, characterData: true });
  setTimeout(() => fail(new Error(`${number} was not shown`)), patienceMs);
  look();
})"""
# Frames are counted by the milliseconds since the one before: a list of them would be the page's memory in the end.
WATCH = """() => {
  window.bench = { tasks: [], gaps: new Uint32Array(10000), last: performance.now() };
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) bench.tasks.push(entry.duration);
  }).observe({ type: "longtask" });
  const frame = (now) => {
    bench.gaps[Math.min(Math.round(now - bench.last), 9999)] += 1;
    bench.last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}"""
SEEN = "() => ({ tasks: bench.tasks, gaps: [...bench.gaps] })"
FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"


def first_sight(entry: Entry, place: Place, pace: Pace) -> Figures:
    """When the overview is painted, and how long after a commit it shows the new number."""
    visitor = visitor_of(entry, place)
    with _page(visitor) as page:
        paints = [_painted_ms(page) for _ in range(PAINTS)]
        shown_ms = list(_changes_ms(page, visitor, pace.changes))
    return {
        "paint_ms": percentile(paints, 50),
        "shown_p50_ms": percentile(shown_ms, 50),
        "shown_p95_ms": percentile(shown_ms, 95),
        "shown_longest_ms": max(shown_ms),
    }


def open_long(entry: Entry, place: Place, pace: Pace) -> Figures:
    """An overview that stays open while every group changes ten times a second, and somebody scrolls and types."""
    visitor = visitor_of(entry, place)
    with _page(visitor) as page, _changing(visitor) as ticks:
        session = page.context.new_cdp_session(page)
        before_mb = _memory_mb(session)
        page.evaluate(WATCH)
        _scroll_and_type(page, pace.watched_s)
        seen = page.evaluate(SEEN)
        after_mb = _memory_mb(session)
    return {
        "changes_per_s": ticks[0] * len(visitor.groups[:GROUPS]) / pace.watched_s,
        "long_tasks": len(seen["tasks"]),
        "longest_task_ms": max(seen["tasks"], default=0),
        "frame_p99_ms": percentile(list(Counter(dict(enumerate(seen["gaps"]))).elements()), 99),
        "before_mb": before_mb,
        "after_mb": after_mb,
    }


@contextmanager
def _page(visitor: Visitor) -> Iterator[Page]:
    """An overview on which the numbers are live."""
    with _browser() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        base = str(visitor.browser.base_url)
        page.context.add_cookies([{"name": n, "value": v, "url": base} for n, v in visitor.browser.cookies.items()])
        page.goto(f"{base}/console/")
        page.wait_for_selector(LIVE)
        yield page


@contextmanager
def _browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # It comes with the tests, only where this is measured.

    try:
        program = chromium()
    except CannotTry as problem:
        raise CannotMeasure(str(problem)) from None
    with _before_the_others():
        playwright = sync_playwright().start()
    try:
        yield playwright.chromium.launch(executable_path=program, args=OPTIONS)
    finally:
        playwright.stop()


@contextmanager
def _before_the_others() -> Iterator[None]:
    """What is started meanwhile goes before the servers and the load: people have a machine of their own for it.

    Only root may say so. For others it shares the processors with all that it looks at.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, HIGH_PRIORITY)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _painted_ms(page: Page) -> float:
    page.reload()
    page.wait_for_selector(LIVE)
    return float(page.evaluate(FIRST_PAINT))


def _changes_ms(page: Page, visitor: Visitor, number: int) -> Iterator[float]:
    """From sending a commit to the page's new number."""
    visitor.update(adds=[{"group": ADDED_TO}])
    page.goto(f"{visitor.browser.base_url}/console/?filter={quote(ADDED_TO)}")
    page.wait_for_selector(LIVE)
    for place in range(number):
        sent_s = time.time()
        visitor.update(adds=[{"group": ADDED_TO}])
        yield page.evaluate(WHEN_IT_SAYS, [ADDED_TO, place + 2, SHOWN_WITHIN_MS]) - sent_s * 1_000


@contextmanager
def _changing(visitor: Visitor) -> Iterator[list[int]]:
    """Meanwhile every group gets a task, and loses it again, ten times a second. How often, in a list of one."""
    ticks, is_over = [0], threading.Event()
    work = threading.Thread(target=_change, args=(visitor, ticks, is_over))
    work.start()
    try:
        yield ticks
    finally:
        is_over.set()
        work.join()


def _change(visitor: Visitor, ticks: list[int], is_over: threading.Event) -> None:
    ids: list[int] = []
    while not is_over.wait(1 / TICKS_PER_S):
        ids = visitor.update(deletes=ids, adds=[] if ids else [{"group": group} for group in visitor.groups[:GROUPS]])
        ticks[0] += 1


def _scroll_and_type(page: Page, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    field = page.locator("#filter")
    while time.monotonic() < end_s:
        page.mouse.wheel(0, 600)
        page.wait_for_timeout(500)
        page.mouse.wheel(0, -600)
        field.press_sequentially("mail", delay=80)
        field.fill("")
        page.wait_for_timeout(500)


def _memory_mb(session: CDPSession) -> float:
    """What the page's scripts hold on to."""
    session.send("HeapProfiler.collectGarbage")
    found: dict[str, Any] = session.send("Runtime.getHeapUsage")
    return float(found["usedSize"]) / 1_000_000
