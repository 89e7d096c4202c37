"""Somebody else who holds locks and connections."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import psycopg

from ..history import Event
from ..outcome import Figure, Outcome, outcome_of
from ..stage import Stage, wait_until
from ..truth import FILE

BLOCKED_S = 20.0
TOLD_S = 5.0
BACK_S = 5.0
LOCKED = 5  # Tasks.


def blocker(stage: Stage) -> Outcome:
    """Row locks on some tasks and all other connections of PostgreSQL; the only writer's place of SQLite."""
    server = stage.server()
    with stage.load([server]):
        time.sleep(stage.pace.seconds / 6)
        began_s = time.monotonic()
        with blocked(stage):
            time.sleep(BLOCKED_S)
            ended_s = time.monotonic()
        back_s = wait_until(server.is_ready, "the store is ready again")
        time.sleep(stage.pace.seconds / 6)
    history = stage.history(server, may_be_unavailable=True)
    meanwhile = [event for event in history.requests if began_s < event.sent_s and event.received_s < ended_s]
    told_s = [event.received_s - event.sent_s for event in history.requests if event.status == 503]
    figures = [
        Figure(name="503 within", value=max(told_s, default=0.0), limit=TOLD_S),
        Figure(name="ready again within", value=back_s, limit=BACK_S),
    ]
    return outcome_of(history, faults=1, problems=list(stalled(stage, meanwhile)), figures=figures)


def stalled(stage: Stage, meanwhile: list[Event]) -> Iterator[str]:
    """What did not go on while some was locked: everything else does; on SQLite at least all reading."""
    answered = [event for event in meanwhile if event.status == 200]
    if not [event for event in answered if stage.is_sqlite or event.is_change]:
        yield f"nobody got anything done while others held locks: {len(meanwhile)} requests, none was answered"


@contextmanager
def blocked(stage: Stage) -> Iterator[None]:
    if stage.is_sqlite:
        with closing(sqlite3.connect(stage.folder / "data" / FILE, isolation_level=None, timeout=60)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
        return
    with ExitStack() as stack:
        holder = stack.enter_context(psycopg.connect(stage.database_url))
        holder.execute("SELECT id FROM tasks_app_task ORDER BY id DESC LIMIT %s FOR UPDATE", [LOCKED])
        with suppress(psycopg.OperationalError):  # Until there is none left.
            while True:
                stack.enter_context(psycopg.connect(stage.database_url))
        yield
