"""Many tasks purged by a person while workers claim: what the person waits for, and what the workers."""

from __future__ import annotations

import html
import re
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import httpx

from .. import CannotMeasure
from ..figures import Figures, percentile
from ..measuring import Entry
from ..pace import Pace
from ..places import Place
from .visitor import PATIENCE_S, Visitor, visitor_of

PURGED, WORKED_ON = "bench/purged", "bench/worked"
WORKERS, AT_HAND = 8, 200
ADDED_AT_ONCE = 5_000
LOOK_EVERY_S = 1.0  # As the page does.


def purge_and_undo(entry: Entry, place: Place, pace: Pace) -> Figures:
    """Workers alone, beside the purge of a whole group, and beside its undo."""
    visitor = visitor_of(entry, place)
    _add(visitor, PURGED, pace.purged)
    _add(visitor, WORKED_ON, AT_HAND)
    with _workers(visitor) as claims_ms:
        _time_of(claims_ms)
        time.sleep(2 * pace.seconds)
        usual_ms = _time_of(claims_ms)
        preview_s, asked = _previewed(visitor)
        answer_s, purge = _begun(visitor, "/console/purge", asked)
        purge_s = answer_s + _seconds_of(visitor, purge)
        purging_ms = _time_of(claims_ms)
        _, undo = _begun(visitor, f"/console/operations/{purge}/undo", {})
        undo_s = _seconds_of(visitor, undo)
        undoing_ms = _time_of(claims_ms)
    return {
        "preview_ms": preview_s * 1_000,
        "answer_ms": answer_s * 1_000,
        "purge_s": purge_s,
        "undo_s": undo_s,
        "usual_ms": usual_ms,
        "purging_ms": purging_ms,
        "undoing_ms": undoing_ms,
        "times": max(purging_ms, undoing_ms) / usual_ms,
    }


def _add(visitor: Visitor, group: str, number: int) -> None:
    for _ in range(-(-number // ADDED_AT_ONCE)):
        visitor.update(adds=[{"group": group, "data": "x" * 100}] * min(number, ADDED_AT_ONCE))


@contextmanager
def _workers(visitor: Visitor) -> Iterator[list[array[float]]]:
    """They claim a task and put another one in its place. How long their claims take, for each of them."""
    claims_ms = [array("d") for _ in range(WORKERS)]
    is_over = threading.Event()
    works = [
        threading.Thread(target=_work, args=(visitor, number, noted, is_over)) for number, noted in enumerate(claims_ms)
    ]
    for work in works:
        work.start()
    try:
        yield claims_ms
    finally:
        is_over.set()
        for work in works:
            work.join()


def _work(visitor: Visitor, number: int, claims_ms: array[float], is_over: threading.Event) -> None:
    me = {"clientid": 1_000 + number}
    with httpx.Client(base_url=visitor.api.base_url, headers=visitor.api.headers, timeout=PATIENCE_S) as api:
        while not is_over.is_set():
            asked_s = time.perf_counter()
            tasks = api.post("/claim", json={**me, "group": WORKED_ON}).json()["tasks"]
            claims_ms.append((time.perf_counter() - asked_s) * 1_000)
            done = {"adds": [{"group": WORKED_ON}] * len(tasks), "deletes": [task["id"] for task in tasks]}
            api.post("/update", json={**me, **done})


def _time_of(claims_ms: list[array[float]]) -> float:
    """The 95th percentile of the claims since the last time."""
    taken = [ms for noted in claims_ms for ms in noted[:]]
    for noted in claims_ms:
        del noted[:]
    return percentile(taken, 95)


def _previewed(visitor: Visitor) -> tuple[float, dict[str, str]]:
    """How long the question takes, and what its form sends."""
    view = visitor.look_at(f"/console/confirm?verb=purge&all=1&name={quote(PURGED)}")
    form = view.text.partition('class="confirm"')[2]
    fields = {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form)}
    return view.seconds, {name: fields[name] for name in ("name", "all", "expected", "bound", "as_of")} | {
        "typed": PURGED
    }


def _begun(visitor: Visitor, path: str, fields: dict[str, str]) -> tuple[float, int]:
    """How long the answer takes, and the number of the operation."""
    form = {**fields, "csrfmiddlewaretoken": visitor.browser.cookies["csrftoken"]}
    began_s = time.perf_counter()
    answer = visitor.browser.post(path, data=form, follow_redirects=False)
    seconds = time.perf_counter() - began_s
    if answer.status_code != httpx.codes.FOUND:
        raise CannotMeasure(f"{path} answers {answer.status_code}")
    newest = re.search(r'href="/console/operations/(\d+)"', visitor.look_at("/console/operations").text)
    if not newest:
        raise CannotMeasure("no operation has begun")
    return seconds, int(newest[1])


def _seconds_of(visitor: Visitor, operation: int) -> float:
    """Until it has ended. Raises CannotMeasure when it did not do all of it."""
    began_s = time.perf_counter()
    while 'data-state="running"' in (text := visitor.look_at(f"/console/operations/{operation}").text):
        time.sleep(LOOK_EVERY_S)
    if "<dt>Skipped</dt><dd>0</dd>" not in text or "<dt>Failed</dt><dd>0</dd>" not in text:
        raise CannotMeasure(f"operation {operation} has left something out")
    return time.perf_counter() - began_s
