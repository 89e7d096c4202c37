"""One measurement of one contender: fill, settle, work, and compare what it says with what its database says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import CannotMeasure
from .contenders import Contender
from .figures import Figures
from .pace import PRESENT, Load, Pace
from .places import Place

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
    load = entry.load
    done = _work(place, load, pace.lead_s, pace.seconds)
    requests_a_second = max(done["per_second"] * load.requests_per_task, 1e-9)
    # Cores are seconds of processor time a second. Without a server its work is the client's.
    cores = {"server": done["cores"]["client"], **done["cores"]}
    found = {
        **{name: float(done[name]) for name in ("per_second", "mean_ms", "p50_ms", "p99_ms", "memory_mb")},
        "client_cores": cores.pop("client"),
        **{f"{name}_us": value / requests_a_second * 1e6 for name, value in cores.items()},
    }
    if done["log_bytes"]:
        found["log_bytes_each"] = done["log_bytes"] / max(done["taken"] * load.requests_per_task, 1)
    return {**found, "kept": done["per_second"] / load.rate} if load.rate else found


def _work(place: Place, load: Load, lead_s: float, seconds: float) -> Done:
    for _ in range(ATTEMPTS):
        _stock_up(place, load, lead_s + seconds)
        place.storage.settle()
        left, claimed, logged = place.left(), place.claimed(), place.storage.log_bytes()
        done = _trial(place, load, lead_s, seconds)
        logged = place.storage.log_bytes() - logged
        confirm(done["taken"], left, claimed, place)
        place.known_rates[load] = done["per_second"]
        if not done["has_run_dry"] and place.left() >= PRESENT:
            return {**done, "log_bytes": logged}
    raise CannotMeasure(f"it took more tasks than expected, {ATTEMPTS} times: fewer than {PRESENT} were left")


def _trial(place: Place, load: Load, lead_s: float, seconds: float) -> Done:
    strangers = place.storage.strangers()
    found: Done = place.ask(load, "work", lead_s=lead_s, seconds=seconds, watched=place.pids(), strangers=strangers)
    return found


def _stock_up(place: Place, load: Load, seconds: float) -> None:
    """Add so many tasks that those which have to be present are still there at the end."""
    _fill(place, load, PRESENT)
    rate = place.known_rates.get(load) or _trial(place, load, 0, TRIAL_S)["per_second"]
    _fill(place, load, PRESENT + int(rate * seconds * MARGIN) + load.clients * load.batch)


def _fill(place: Place, load: Load, tasks: int) -> None:
    missing = tasks - place.left()
    if missing > 0:
        place.ask(load, "add", tasks=missing)


def confirm(taken: int, left: int, claimed: int | None, place: Place) -> None:
    """Compare what the clients say that they took with what became of the rows.

    Raises CannotMeasure when they do not agree.
    """
    gone, claims = left - place.left(), place.claimed()
    if gone != taken:
        raise CannotMeasure(f"the clients say that they took {taken} tasks; there are {gone} fewer in the database")
    if claims is not None and claimed is not None and claims - claimed != taken:
        raise CannotMeasure(f"the clients say that they took {taken} tasks; the database saw {claims - claimed} claims")
