"""Clocks that are wrong, and clocks that are put."""

from __future__ import annotations

import time
from dataclasses import replace

from ..history import History
from ..outcome import Outcome, outcome_of
from ..processes import faked_clock
from ..stage import Stage

NEVER_MS = 2**62
PUT_TO = ("+2h", "-2h")


def clocks(stage: Stage) -> Outcome:
    """Clients a day off, and on PostgreSQL, whose clock counts, servers an hour off: nobody notices."""
    variables = [{}] if stage.is_sqlite else [faked_clock("+1h"), faked_clock("-1h")]
    servers = [stage.server(**clock) for clock in variables]
    with stage.load(servers, days_off=(1, -1)):
        time.sleep(stage.pace.seconds)
    return outcome_of(stage.history(servers[0]), faults=stage.pace.clients + len(servers))


def database_clock(stage: Stage) -> Outcome:
    """The clock that counts is put two hours on, then back: no id is used twice, nothing is lost, all is in order."""
    servers = stage.servers()
    with stage.load(servers):
        for offset in (*PUT_TO, "+0"):
            time.sleep(stage.pace.seconds / 3)
            if stage.is_sqlite:
                servers[0].kill()
                servers[0].start(**faked_clock(offset))
            else:
                stage.places.cluster.kill()
                stage.places.cluster.start(**faked_clock(offset))
        stage.pause(1.0, 2.0)
    history = stage.history(servers[0], may_be_unavailable=True)
    return outcome_of(without_clocks(history), faults=len(PUT_TO) + 1)


def without_clocks(history: History) -> History:
    """As if no client knew what time it is: what depends on that proves nothing."""
    requests = [replace(request, sent_ms=0, received_ms=NEVER_MS) for request in history.requests]
    return replace(history, requests=requests)
