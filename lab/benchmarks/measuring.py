"""One measurement of one contender: fill, settle, work, and compare what it says with what its database says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.testing.processes import memory_mb

from . import CannotMeasure
from .contenders import Contender
from .figures import Figures
from .pace import PRESENT, Load, Pace
from .places import Account, Place

TRIAL_S = 0.5
MARGIN = 1.7  # So many times the tasks that will be taken according to the trial, which is short.
ATTEMPTS = 3

Done = Mapping[str, Any]  # What a client says of its work.


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of a scene: a contender under a load."""

    contender: Contender
    load: Load

    @property
    def name(self) -> str:
        """What makes it differ from other entries of its scene."""
        details = [
            f"{self.load.clients} clients" if self.load.clients > 1 else "1 client",
            "keys" if self.load.with_keys else "",
            f"{self.load.rate} a second" if self.load.rate else "",
        ]
        return ", ".join([self.contender.name, *filter(None, details)])


def tasks_handed_out(entry: Entry, place: Place, pace: Pace) -> Figures:
    """How many tasks a second the clients get done, how long a claim takes, and what it costs.

    Raises CannotMeasure when the database does not agree that all of them were done.
    """
    done = _work(place, entry.load, pace.lead_s, pace.seconds)
    found = {**_costs(done, place, entry.load), **_some(done, "per_second", "mean_ms", "p50_ms", "p99_ms")}
    if not entry.load.rate:
        return found
    return {**found, "kept": done["per_second"] / entry.load.rate}


def _work(place: Place, load: Load, lead_s: float, seconds: float) -> Done:
    for _ in range(ATTEMPTS):
        _stock_up(place, load, lead_s + seconds)
        place.storage.settle()
        before = place.account()
        done = place.work(load, lead_s, seconds)
        after = place.account()
        confirm(done["taken"], before, after)
        place.known_rates[load] = done["per_second"]
        if not done["has_run_dry"] and after.left >= PRESENT:
            return done
    raise CannotMeasure(f"it took more tasks than expected, {ATTEMPTS} times: fewer than {PRESENT} were left")


def _stock_up(place: Place, load: Load, seconds: float) -> None:
    """Add so many tasks that those which have to be present are still there at the end."""
    _fill(place, load, PRESENT)
    rate = place.known_rates.get(load) or place.work(load, 0, TRIAL_S)["per_second"]
    _fill(place, load, PRESENT + int(rate * seconds * MARGIN) + load.clients * load.batch)


def _fill(place: Place, load: Load, tasks: int) -> None:
    missing = tasks - place.left()
    if missing > 0:
        place.ask(load, "add", tasks=missing)


def confirm(taken: int, before: Account, after: Account) -> None:
    """Compare what the clients say that they took with what became of the rows.

    Raises CannotMeasure when they do not agree.
    """
    gone = before.left - after.left
    if gone != taken:
        raise CannotMeasure(f"the clients say that they took {taken} tasks; there are {gone} fewer in the database")
    if before.claimed is not None and after.claimed != before.claimed + taken:
        claims = (after.claimed or 0) - before.claimed
        raise CannotMeasure(f"the clients say that they took {taken} tasks; the database saw {claims} claims")


def _costs(done: Done, place: Place, load: Load) -> Figures:
    """What a request costs, and the memory of what does the store's work: its server, or else the clients."""
    requests_a_second = max(done["per_second"] * load.requests_per_task, 1e-9)
    # Cores are seconds of processor time a second.
    cores = {"server": done.get("server_cores", done["client_cores"]), "database": done.get("database_cores")}
    used_us = {f"{name}_us": value / requests_a_second * 1e6 for name, value in cores.items() if value is not None}
    log = {
        f"{name}_each": done[name] / (requests_a_second * done["seconds"])
        for name in ("log_bytes", "log_image_bytes")
        if name in done
    }
    memory = sum(memory_mb(server.pid) for server in place.servers) if place.servers else done["memory_mb"]
    return {"client_cores": done["client_cores"], **used_us, **log, "memory_mb": memory}


def _some(found: Done, *names: str) -> dict[str, float]:
    return {name: float(found[name]) for name in names}
