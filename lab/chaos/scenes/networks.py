"""Connections that break before, in and after a request."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ..outcome import SceneResult, outcome_of
from ..proxy import Proxy
from ..stage import Stage, wait_until


def cut_network(stage: Stage) -> SceneResult:
    """Clients send again with the same key what was not answered: each thing is done once."""
    servers = stage.servers()
    proxies = [Proxy(server.port, f"{stage.seed}/{number}") for number, server in enumerate(servers)]
    with ExitStack() as stack:
        for proxy in proxies:
            stack.enter_context(proxy.running())
        with stage.load(proxies, resends=True):
            wait_until(lambda: cuts(proxies) >= stage.pace.cuts, f"there are {stage.pace.cuts} cuts")
    history = stage.history(servers[0])
    doubts = [event for event in history.in_doubt if not event.is_claim]
    problems = [f"request {event.key} of client {event.client} got no answer for a minute" for event in doubts]
    return outcome_of(history, faults=cuts(proxies), problems=problems)


def cuts(proxies: Sequence[Proxy]) -> int:
    return sum(proxy.faults.total() for proxy in proxies)
