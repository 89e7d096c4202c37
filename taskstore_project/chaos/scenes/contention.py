"""Nothing goes wrong but that all want the same."""

from __future__ import annotations

import time

from ..outcome import Figure, Outcome, outcome_of
from ..stage import Stage


def contention(stage: Stage) -> Outcome:
    servers = stage.servers()
    with stage.load(servers):
        time.sleep(stage.pace.seconds)
    history = stage.history(servers[0])
    answered = sum(request.status == 200 for request in history.requests)
    least = Figure(name="operations", value=answered, limit=stage.pace.least_operations, unit="", is_least=True)
    lost = [f"request {event.path} of client {event.client} was never answered" for event in history.in_doubt]
    return outcome_of(history, faults=0, problems=lost, figures=[least])
