"""A PostgreSQL that is killed under the servers."""

from __future__ import annotations

from ..outcome import Figure, Outcome, outcome_of
from ..stage import Stage, wait_until

RECOVERED_S = 5.0
TOLD_S = 5.0


def kill_postgresql(stage: Stage) -> Outcome:
    """kill -9 of all its processes: meanwhile a 503 that says when to come again, afterwards all goes on by itself."""
    cluster = stage.places.cluster
    servers = stage.servers()
    recovered_s = []
    with stage.load(servers):
        for _ in range(stage.pace.postgresql_kills):
            stage.pause(0.5, 2.0)
            cluster.kill()
            stage.pause(0.5, 3.0)
            cluster.start()
            recovered_s.append(wait_until(lambda: all(server.is_ready() for server in servers), "the servers recover"))
        stage.pause(0.5, 1.0)
    history = stage.history(servers[0], may_be_unavailable=True)
    told_s = [event.received_s - event.sent_s for event in history.requests if event.status == 503]
    figures = [
        Figure(name="ready again within", value=max(recovered_s), limit=RECOVERED_S),
        Figure(name="503 within", value=max(told_s, default=0.0), limit=TOLD_S),
    ]
    return outcome_of(history, faults=len(recovered_s), figures=figures)
