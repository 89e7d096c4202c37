"""Clients of gRPC and of the API over HTTP want the same tasks."""

from __future__ import annotations

from ..grpc_client import EVERYBODY
from ..outcome import Figure, Outcome, outcome_of
from ..processes import free_port
from ..stage import Stage

KILLS = 4  # As many times fewer than where servers are killed only.
SHARE = 10  # Of the operations where nothing is killed.


def by_grpc(stage: Stage) -> Outcome:
    """While a server is killed now and then. What the messages don't say of a task is taken from the tables."""
    port = str(free_port())
    server = stage.server(*stage.usual_command, "--grpc-port", port)
    kills = max(1, stage.pace.server_kills // KILLS)
    with stage.load([server], grpc_addresses=[f"127.0.0.1:{port}"]):
        for _ in range(kills):
            stage.pause(stage.pace.seconds / kills / 2, stage.pace.seconds / kills)
            server.kill()
            server.start()
        stage.pause(1.0, 2.0)
    history = stage.history(server)
    answered = sum(event.client == EVERYBODY for event in history.done)
    least = Figure(
        name="changes by gRPC", value=answered, limit=stage.pace.least_operations / SHARE, unit="", is_least=True
    )
    return outcome_of(history, faults=kills, figures=[least])
